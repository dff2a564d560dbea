"""Questions about the shop, each with SQL that a person wrote for it. Today is 17 November 2025."""

from __future__ import annotations

# The order of the rows counts for those of `SORTED`; for all others it does not.
ANSWERED: tuple[tuple[str, str], ...] = (
    # Counting.
    ("How many customers are there?", "select count(*) from customers"),
    ("how many orders do we have", "select count(*) from orders"),
    ("Number of products", "select count(*) from products"),
    ("count the customers", "select count(*) from customers"),
    ("What is the total number of reviews?", "select count(*) from reviews"),
    ("How many customers live in Berlin?", "select count(*) from customers where city = 'Berlin'"),
    ("How many customers are there in New York?", "select count(*) from customers where city = 'New York'"),
    ("how many pending orders are there", "select count(*) from orders where status = 'pending'"),
    ("How many products are discontinued?", "select count(*) from products where is_discontinued"),
    ("How many orders were placed in 2024?", "select count(*) from orders where ordered_on like '2024%'"),
    ("how many products cost more than 50 euros", "select count(*) from products where price > 50"),
    ("How many different cities are there?", "select count(distinct city) from customers"),
    ("How many distinct countries of suppliers?", "select count(distinct country) from suppliers"),
    (
        "How many orders do customers in Berlin have?",
        "select count(*) from orders where customer_id in (select id from customers where city = 'Berlin')",
    ),
    (
        "How many customers have more than 3 orders?",
        "select count(*) from (select customer_id from orders group by 1 having count(*) > 3)",
    ),
    # Filters by values.
    ("customers in Berlin", "select * from customers where city = 'Berlin'"),
    ("CUSTOMERS IN BERLIN", "select * from customers where city = 'Berlin'"),
    ("Show me all Berlin customers", "select * from customers where city = 'Berlin'"),
    ("customers from Berlin or Munich", "select * from customers where city in ('Berlin', 'Munich')"),
    ("customers in Berlin, Munich and Hamburg", "select * from customers where city in ('Berlin','Munich','Hamburg')"),
    ("list the customers with city Berlin", "select * from customers where city = 'Berlin'"),
    ("customers in the city of Berlin", "select * from customers where city = 'Berlin'"),
    ("customers whose city is Berlin", "select * from customers where city = 'Berlin'"),
    ("which customers live in Germany?", "select * from customers where country = 'Germany'"),
    ("customers located in France", "select * from customers where country = 'France'"),
    ("clients in Paris", "select * from customers where city = 'Paris'"),
    ("cancelled orders", "select * from orders where status = 'cancelled'"),
    ("orders with status shipped", "select * from orders where status = 'shipped'"),
    ("orders whose status is pending or returned", "select * from orders where status in ('pending', 'returned')"),
    ('customers named "Ada Adler"', "select * from customers where name = 'Ada Adler'"),
    ("customers whose name is 'Ada Adler'", "select * from customers where name = 'Ada Adler'"),
    ("payments by credit card", "select * from payments where method = 'credit card'"),
    ("business customers in Paris", "select * from customers where is_business and city = 'Paris'"),
    ("discontinued products", "select * from products where is_discontinued = 1"),
    ("order 17", "select * from orders where id = 17"),
    ("What are the products in category Books?", "select * from products where category_id = 1"),
    ("staff in Sales", "select * from employees where department = 'Sales'"),
    # Negation.
    ("customers not in Berlin", "select * from customers where city != 'Berlin'"),
    ("customers who do not live in Berlin or Paris", "select * from customers where city not in ('Berlin','Paris')"),
    ("which customers don't live in Germany", "select * from customers where country <> 'Germany'"),
    (
        "customers in Germany but not in Berlin",
        "select * from customers where country = 'Germany' except select * from customers where city = 'Berlin'",
    ),
    ("products that are not discontinued", "select * from products where not is_discontinued"),
    ("orders whose status is not cancelled", "select * from orders where status != 'cancelled'"),
    ("orders that are not cancelled", "select * from orders where status != 'cancelled'"),
    ("products that do not cost more than 20", "select * from products where price <= 20"),
    ("customers without email", "select * from customers where email is null"),
    ("customers who have an email", "select * from customers where email is not null"),
    ("products without a weight", "select * from products where weight is null"),
    # Comparisons.
    ("products over 50 euros", "select * from products where price > 50"),
    ("products with a price of at least 50", "select * from products where price >= 50"),
    ("products with price between 20 and 30", "select * from products where price >= 20 and price <= 30"),
    ("products that cost between €20 and €30", "select * from products where price >= 20 and price <= 30"),
    ("products cheaper than 10", "select * from products where price < 10"),
    ("products more expensive than 80 euros", "select * from products where price > 80"),
    ("products with stock under 5", "select * from products where stock < 5"),
    ("products where stock = 0", "select * from products where stock = 0"),
    ("products with price over 50 and stock under 10", "select * from products where price > 50 and stock < 10"),
    ("products heavier than 8 kilograms", "select * from products where weight > 8"),
    ("orders under 1,000 euros", "select * from orders where total < 1000"),
    ("orders with a total of 500 or more", "select * from orders where total >= 500"),
    ("reviews with 5 stars", "select * from reviews where rating = 5"),
    ("reviews with a rating of at most two", "select * from reviews where rating <= 2"),
    ("payments over 100 euros by invoice", "select * from payments where amount > 100 and method = 'invoice'"),
    ("employees whose salary is above 5000", "select * from employees where salary > 5000"),
    # Dates.
    ("orders in 2024", "select * from orders where strftime('%Y', ordered_on) = '2024'"),
    ("orders in March 2024", "select * from orders where ordered_on between '2024-03-01' and '2024-03-31'"),
    ("orders in Q1 2024", "select * from orders where ordered_on between '2024-01-01' and '2024-03-31'"),
    ("orders since March", "select * from orders where ordered_on >= '2025-03-01'"),
    ("orders since December", "select * from orders where ordered_on >= '2024-12-01'"),
    ("orders before 2023-06-01", "select * from orders where ordered_on <= '2023-05-31'"),
    ("orders after 2025-06-30", "select * from orders where ordered_on > '2025-06-30'"),
    ("orders after 2024", "select * from orders where ordered_on > '2024-12-31'"),
    ("orders last month", "select * from orders where ordered_on like '2025-10-%'"),
    ("orders this year", "select * from orders where ordered_on like '2025-%'"),
    ("payments last year", "select * from payments where paid_at like '2024-%'"),
    ("payments in the last 30 days", "select * from payments where paid_at >= '2025-10-18' and paid_at < '2025-11-18'"),
    (
        "orders between 2024-02-01 and 2024-02-29",
        "select * from orders where ordered_on >= '2024-02-01' and ordered_on <= '2024-02-29'",
    ),
    (
        "payments from January 2024 to March 2024",
        "select * from payments where paid_at >= '2024-01-01' and paid_at < '2024-04-01'",
    ),
    ("shipments delivered in 2024", "select * from shipments where delivered_on like '2024%'"),
    ("employees hired before 2020", "select * from employees where hired_on < '2020-01-01'"),
    ("customers who signed up in 2024", "select * from customers where signed_up_on like '2024%'"),
    ("orders with an order date after June 1, 2025", "select * from orders where ordered_on > '2025-06-01'"),
    ("reviews written this year", "select * from reviews where written_on like '2025%'"),
    (
        "order items in 2024",
        "select i.* from order_items i join orders o on o.id = order_id where ordered_on like '2024%'",
    ),
    # Aggregates.
    ("average price of products", "select avg(price) from products"),
    ("What is the average product price?", "select avg(price) from products"),
    ("highest salary", "select max(salary) from employees"),
    (
        "What is the lowest price of products in category Games?",
        "select min(price) from products where category_id = 2",
    ),
    ("minimum and maximum price of products", "select min(price), max(price) from products"),
    ("average price and total stock of products", "select avg(price), sum(stock) from products"),
    ("total stock of discontinued products", "select sum(stock) from products where is_discontinued"),
    ("sum of the totals of orders in 2024", "select sum(total) from orders where ordered_on like '2024%'"),
    ("total order value in 2024", "select sum(total) from orders where ordered_on like '2024%'"),
    ("average salary in Support", "select avg(salary) from employees where department = 'Support'"),
    ("total amount of payments by invoice", "select sum(amount) from payments where method = 'invoice'"),
    ("average rating of reviews in 2024", "select avg(rating) from reviews where written_on like '2024%'"),
    ("When was the latest order?", "select max(ordered_on) from orders"),
    ("when was the first order of customer 5", "select min(ordered_on) from orders where customer_id = 5"),
    ("earliest hired date of employees", "select min(hired_on) from employees"),
    # Groups.
    ("number of orders per status", "select status, count(*) from orders group by status"),
    ("how many customers per country and city", "select country, city, count(*) from customers group by 1, 2"),
    ("average salary by department", "select department, avg(salary) from employees group by department"),
    (
        "average price of products per category",
        "select c.id, c.name, avg(price) from products p join categories c on c.id = p.category_id group by c.id",
    ),
    (
        "for each category, the average price of products",
        "select c.id, c.name, avg(price) from categories c join products p on c.id = p.category_id group by c.id",
    ),
    (
        "number of products in each category",
        "select c.id, c.name, count(p.id) from categories c left join products p on c.id = category_id group by c.id",
    ),
    (
        "how many orders does each customer have",
        "select c.id, c.name, count(o.id) from customers c left join orders o on c.id = customer_id group by c.id",
    ),
    (
        "number of orders per customer",
        "select c.id, c.name, count(*) from customers c join orders o on c.id = customer_id group by c.id",
    ),
    (
        "number of products per supplier",
        "select s.id, s.name, count(*) from products p left join suppliers s on s.id = supplier_id group by s.id",
    ),
    ("number of orders per month", "select substr(ordered_on, 1, 7), count(*) from orders group by 1"),
    ("how many orders per year", "select substr(ordered_on, 1, 4), count(*) from orders group by 1"),
    ("total amount per method", "select method, sum(amount) from payments group by 1"),
    (
        "total quantity per product",
        "select p.id, p.name, sum(quantity) from products p join order_items i on p.id = product_id group by p.id",
    ),
    (
        "average total of orders per city",
        "select city, avg(total) from customers c join orders o on c.id = o.customer_id group by city",
    ),
    (
        "number of orders in 2024 per country",
        "select country, count(*) from customers c join orders o on c.id = customer_id "
        "where ordered_on like '2024%' group by 1",
    ),
    # Superlatives and limits.
    ("the most expensive product", "select * from products order by price desc limit 1"),
    ("Which product is the cheapest?", "select * from products order by price limit 1"),
    ("top 5 products by price", "select * from products order by price desc, id limit 5"),
    ("the 3 cheapest products in category Garden", "select * from products where category_id=3 order by price limit 3"),
    ("the newest order", "select * from orders where ordered_on = (select max(ordered_on) from orders)"),
    ("the last 5 orders", "select * from orders order by ordered_on desc, id limit 5"),
    ("product with the highest stock", "select * from products where stock = (select max(stock) from products)"),
    ("name of the most expensive product", "select name from products order by price desc limit 1"),
    (
        "the heaviest product of supplier Nordwind",
        "select * from products where supplier_id = 1 "
        "and weight = (select max(weight) from products where supplier_id = 1)",
    ),
    (
        "which customer has the most orders",
        "select c.*, count(*) from customers c join orders o on c.id = o.customer_id group by c.id "
        "having count(*) = (select count(*) from orders group by customer_id order by 1 desc limit 1)",
    ),
    (
        "customers with the fewest orders",
        "select c.*, 0 from customers c where id not in (select customer_id from orders)",
    ),
    (
        "which city has the most customers?",
        "select city, count(*) from customers group by city "
        "having count(*) = (select count(*) from customers group by city order by 1 desc limit 1)",
    ),
    (
        "which department has the highest average salary",
        "select department, avg(salary) from employees group by 1 order by 2 desc limit 1",
    ),
    (
        "top 3 cities by number of customers",
        "select city, count(*) from customers group by 1 order by 2 desc, 1 limit 3",
    ),
    (
        "top 2 customers by number of reviews in 2024",
        "select c.*, count(*) from customers c join reviews r on c.id = customer_id "
        "where written_on like '2024%' group by c.id order by count(*) desc, c.id limit 2",
    ),
    ("list 4 categories", "select * from categories order by id limit 4"),
    # Other tables.
    (
        "orders of customers in Berlin",
        "select o.* from orders o join customers c on c.id=customer_id where city='Berlin'",
    ),
    ("orders in Berlin", "select o.* from orders o join customers c on c.id = customer_id where city = 'Berlin'"),
    (
        "pending orders from Germany in 2024",
        "select o.* from orders o join customers c on c.id = customer_id "
        "where country = 'Germany' and status = 'pending' and ordered_on like '2024%'",
    ),
    (
        "products from Germany",
        "select * from products where supplier_id in (select id from suppliers where country='Germany')",
    ),
    ('orders of customer "Ada Adler"', "select * from orders where customer_id = 1"),
    ("payments of order 17", "select * from payments where order_id = 17"),
    ("which customers have no orders?", "select * from customers where id not in (select customer_id from orders)"),
    ("orders without payments", "select * from orders where id not in (select order_id from payments)"),
    (
        "customers with no orders in 2024",
        "select * from customers where id not in (select customer_id from orders where ordered_on like '2024%')",
    ),
    ("products without a supplier", "select * from products where supplier_id is null"),
    ("categories without products", "select * from categories where id not in (select category_id from products)"),
    (
        "customers with no orders and no reviews",
        "select * from customers where id not in (select customer_id from orders) "
        "and id not in (select customer_id from reviews)",
    ),
    (
        "customers with more than 5 orders",
        "select * from customers where id in (select customer_id from orders group by 1 having count(*) > 5)",
    ),
    (
        "customers with at least 2 orders over 300 euros",
        "select * from customers where id in "
        "(select customer_id from orders where total > 300 group by 1 having count(*) >= 2)",
    ),
    (
        "products with between 2 and 3 reviews",
        "select * from products where id in (select product_id from reviews group by 1 having count(*) in (2, 3))",
    ),
    (
        "customers with orders over 700 euros",
        "select distinct c.* from customers c join orders o on c.id = customer_id where total > 700",
    ),
    (
        "orders with products in category Music",
        "select distinct o.* from orders o join order_items i on o.id = order_id "
        "join products p on p.id = product_id where category_id = 5",
    ),
    (
        "reviews by customers from Berlin",
        "select r.* from reviews r join customers c on c.id=customer_id where city='Berlin'",
    ),
    (
        "shipments of orders of customers in Paris",
        "select s.* from shipments s join orders o on o.id = order_id join customers c on c.id = customer_id "
        "where city = 'Paris'",
    ),
    # Columns and order.
    ("names and emails of customers in Vienna", "select name, email from customers where city = 'Vienna'"),
    ("product names and prices", "select name, price from products"),
    ("customers' names", "select name from customers"),
    ("the different statuses of orders", "select distinct status from orders"),
    ("list the distinct cities of customers in France", "select distinct city from customers where country = 'France'"),
    # Written when the rules were finished, to see whether they answer other words than those they were made with.
    ("What is the average order value in 2025?", "select avg(total) from orders where ordered_on like '2025%'"),
    (
        "List all customers from Vienna who have at least two orders",
        "select * from customers c where city = 'Vienna' and (select count(*) from orders o where "
        "o.customer_id = c.id) >= 2",
    ),
    ("Show the five cheapest products", "select * from products order by price, id limit 5"),
    ("Which customers signed up this year?", "select * from customers where signed_up_on like '2025%'"),
    (
        "Give me the name and salary of every employee in Sales",
        "select name, salary from employees where department = 'Sales'",
    ),
    ("Which orders have a total below 20 euros?", "select * from orders where total < 20"),
    ("How many reviews have a rating of 1?", "select count(*) from reviews where rating = 1"),
    (
        "Number of shipments per carrier last year",
        "select carrier, count(*) from shipments where shipped_on like '2024%' group by 1",
    ),
    (
        "Orders from business customers",
        "select o.* from orders o join customers c on c.id = o.customer_id where is_business",
    ),
    (
        "How many products does each supplier have?",
        "select s.id, s.name, count(p.id) from suppliers s left join products p on p.supplier_id = s.id group by s.id",
    ),
    (
        "Which employees were hired between 2018 and 2020?",
        "select * from employees where hired_on >= '2018-01-01' and hired_on < '2021-01-01'",
    ),
    ("what's the highest order total?", "select max(total) from orders"),
    ("show emails of customers in Hamburg", "select email from customers where city = 'Hamburg'"),
    ("products priced under 15 euros", "select * from products where price < 15"),
    ("the three newest customers", "select * from customers order by signed_up_on desc, id limit 3"),
    (
        "How many discontinued products are in category Kitchen?",
        "select count(*) from products where is_discontinued and category_id = 4",
    ),
    (
        "What was the last shipment?",
        "select * from shipments where shipped_on = (select max(shipped_on) from shipments)",
    ),
    (
        "number of orders by customers in Paris per month",
        "select substr(ordered_on, 1, 7), count(*) from orders o join customers c on c.id = customer_id "
        "where city = 'Paris' group by 1",
    ),
    ("maximum quantity of order items", "select max(quantity) from order_items"),
    (
        "orders with more than one payment",
        "select * from orders o where (select count(*) from payments p where p.order_id = o.id) > 1",
    ),
    (
        "Which categories have more than 8 products?",
        "select * from categories c where (select count(*) from products p where p.category_id = c.id) > 8",
    ),
    (
        "average weight of products in category Garden that are not discontinued",
        "select avg(weight) from products where category_id = 3 and not is_discontinued",
    ),
    (
        "reviews written before 2024 with at most 2 stars",
        "select * from reviews where written_on < '2024-01-01' and rating <= 2",
    ),
    (
        "How many customers in Germany or France have no email?",
        "select count(*) from customers where country in ('Germany', 'France') and email is null",
    ),
    (
        "Which department has the most employees?",
        "select department, count(*) from employees group by 1 having count(*) = (select max(n) from "
        "(select count(*) n from employees group by department))",
    ),
    (
        "least expensive product by Alpenware",
        "select * from products where supplier_id = 3 and price = (select min(price) from products where "
        "supplier_id = 3)",
    ),
    ("Which suppliers are in France?", "select * from suppliers where country = 'France'"),
    (
        "number of reviews for each product",
        "select p.id, p.name, count(r.id) from products p left join reviews r on r.product_id = p.id group by p.id",
    ),
    ("highest price of products by Petit Atelier", "select max(price) from products where supplier_id = 2"),
    ("how many orders have status pending", "select count(*) from orders where status = 'pending'"),
    (
        "customers who signed up between January 2024 and June 2024",
        "select * from customers where signed_up_on between '2024-01-01' and '2024-06-30'",
    ),
    (
        "employee with the lowest salary",
        "select * from employees where salary = (select min(salary) from employees)",
    ),
    (
        "what are the names of the customers with more than 6 orders",
        "select name from customers where id in (select customer_id from orders group by 1 having count(*) > 6)",
    ),
    (
        "which product has the most reviews with 5 stars",
        "select p.*, count(*) from products p join reviews r on r.product_id = p.id where rating = 5 "
        "group by p.id having count(*) = (select max(n) from (select count(*) n from reviews where "
        "rating = 5 group by product_id))",
    ),
    (
        "average salary of employees hired after 2018",
        "select avg(salary) from employees where hired_on >= '2019-01-01'",
    ),
    ("payments on 2024-02-21", "select * from payments where paid_at like '2024-02-21%'"),
    (
        "total stock per category",
        "select c.id, c.name, sum(stock) from products p join categories c on c.id = category_id group by c.id",
    ),
    (
        "number of customers without email per city",
        "select city, count(*) from customers where email is null group by city",
    ),
    (
        "the most recent payment by invoice",
        "select * from payments where method = 'invoice' and paid_at = (select max(paid_at) from "
        "payments where method = 'invoice')",
    ),
    (
        "orders with no shipment and a total over 300 euros",
        "select * from orders where id not in (select order_id from shipments) and total > 300",
    ),
    (
        "customers from Lyon with reviews",
        "select * from customers where city = 'Lyon' and id in (select customer_id from reviews)",
    ),
    ("products that cost exactly 16.52", "select * from products where price = 16.52"),
    (
        "how many shipments with Hermes were delivered last year",
        "select count(*) from shipments where carrier = 'Hermes' and delivered_on like '2024%'",
    ),
    ("countries of suppliers", "select country from suppliers"),
    (
        "business customers without orders",
        "select * from customers where is_business and id not in (select customer_id from orders)",
    ),
    ("order total of order 17", "select total from orders where id = 17"),
    (
        "products in category Games cheaper than 30 euros",
        "select * from products where category_id = 2 and price < 30",
    ),
    (
        "maximum and average total of orders per country",
        "select country, max(total), avg(total) from orders o join customers c on c.id = customer_id group by country",
    ),
    (
        "top 10 orders by total in 2024",
        "select * from orders where ordered_on like '2024%' order by total desc, id limit 10",
    ),
    (
        "customers not in Germany with more than 5 orders",
        "select * from customers c where country <> 'Germany' and (select count(*) from orders o where "
        "o.customer_id = c.id) > 5",
    ),
    (
        "list employees that are not in Sales or Support",
        "select * from employees where department not in ('Sales', 'Support')",
    ),
    ("how many order items does order 17 have?", "select count(*) from order_items where order_id = 17"),
    ("number of orders with payments", "select count(*) from orders where id in (select order_id from payments)"),
    (
        "what is the cheapest product that is not discontinued",
        "select * from products where not is_discontinued and price = (select min(price) from products "
        "where not is_discontinued)",
    ),
    (
        "which city has the fewest customers?",
        "select city, count(*) from customers group by 1 having count(*) = (select min(n) from (select "
        "count(*) n from customers group by city))",
    ),
)

SORTED: tuple[tuple[str, str], ...] = (
    ("products sorted by price", "select * from products order by price, id"),
    ("list products sorted by price descending", "select * from products order by price desc, id"),
    ("orders of customer 5, newest first", "select * from orders where customer_id = 5 order by ordered_on desc, id"),
    ("names of products ordered by weight", "select name from products order by weight, id"),
    ("top 5 products by price", "select * from products order by price desc, id limit 5"),
    ("bottom 3 employees by salary", "select * from employees order by salary, id limit 3"),
    (
        "top 3 customers by number of orders",
        "select c.*, count(*) from customers c join orders o on c.id = customer_id group by c.id "
        "order by count(*) desc, c.id limit 3",
    ),
)
