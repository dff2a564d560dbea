select sum(price) as total from items;
