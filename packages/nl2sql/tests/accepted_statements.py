"""What planners write, in each dialect: it passes the check, and the database executes what the check writes."""

from __future__ import annotations

_EVERYWHERE = """
select * from customers
select distinct city from customers where city is not null order by city desc
select count(*) as n, count(distinct city) from customers
select city, count(*) as n from customers group by city having count(*) > 1 order by n desc limit 3
select c.name, sum(o.total) as revenue from orders o join customers c on c.id = o.customer_id group by 1 order by 2 desc
select c.name from customers c left join orders o on o.customer_id = c.id where o.id is null
select name from customers where id in (select customer_id from orders where total > 10)
select name from customers c where exists (select 1 from orders o where o.customer_id = c.id and o.status = 'paid')
select name, (select max(total) from orders o where o.customer_id = c.id) as best from customers c
with t as (select customer_id, sum(total) as s from orders group by customer_id) select avg(s) from t
with a as (select id from customers), b as (select id from a where id > 3) select count(*) from b
select city from customers union select status from orders order by 1
select id from customers except select customer_id from orders
select case when total > 50 then 'large' else 'small' end as size, count(*) from orders group by 1
select id, row_number() over (partition by customer_id order by total desc) as place from orders
select id, sum(total) over (order by id rows between 2 preceding and current row) as moving from orders
select upper(name), lower(city), length(name), substr(name, 1, 3), trim(name) from customers
select coalesce(city, 'none'), nullif(city, 'Rome'), abs(-id), round(id * 1.5, 1) from customers
select cast(total as integer), total / 2, total * 1.1, -total, id % 2 from orders
select name from customers where name like '%1%' and not city like 'B%' and id between 2 and 20
select name from customers where city in ('Bern', 'Oslo') or id <> 3
select max(total) - min(total) as spread, avg(total) from orders
select sum(total) filter (where status = 'paid') as paid from orders
select o.id from orders o join orders p using (id)
select s.n from (select count(*) as n from orders) s
select name || ' of ' || city as who from customers
select 'it''s; -- not a comment' as text
"""
ACCEPTED = {
    "sqlite": _EVERYWHERE
    + """
select strftime('%Y-%m', placed) as month, count(*) from orders group by month
select date(placed), date('now', '-1 month'), datetime(placed, 'start of month'), julianday('now') from orders
select ifnull(city, ''), iif(id > 3, 1, 0), instr(name, '1'), total(id), group_concat(city, ', ') from customers
select name from customers where city = 'bern' collate nocase
select name from customers where name glob 'c*' and name like 'a\\_b' escape '\\'
select max(id, 3), current_date, unixepoch('now') from customers
SELECT [name], `city`, "ID" FROM Customers
""",
    "duckdb": _EVERYWHERE
    + """
select year(placed), month(placed), date_trunc('month', placed) as m, strftime(placed, '%Y') from orders
select placed + interval 1 month, current_date - interval '30 days', date_diff('day', placed, current_date) from orders
select median(total), quantile_cont(total, 0.5), mode(status), stddev(total), arg_max(id, total) from orders
select string_agg(city, ', '), any_value(city), count_if(id > 3), bool_or(id > 3) from customers
select extract(year from placed), dayname(placed), monthname(placed), epoch(placed) from orders
select try_cast(name as integer), name ilike '%C%', contains(name, 'x'), left(name, 2) from customers
select id // 2, greatest(id, 3), total::decimal(10, 2), date '2026-01-01' from orders
from customers select name
select name, row_number() over (order by id) as n from customers qualify n < 3
""",
    "postgres": _EVERYWHERE
    + """
select date_trunc('month', placed) as m, count(*) from orders group by 1
select extract(year from placed), to_char(placed, 'YYYY-MM'), placed::date, date_part('month', placed) from orders
select now() - interval '1 month', current_date - 30, age(placed), placed at time zone 'UTC' from orders
select percentile_cont(0.5) within group (order by total), stddev(total) from orders
select string_agg(city, ', ' order by city), bool_or(id > 3), count(*) filter (where id > 3) from customers
select name ilike '%C%', position('x' in name), split_part(name, ' ', 1), left(name, 2) from customers
select total::numeric(10, 2), greatest(id, 3), date '2026-01-01', trunc(total::numeric, 1) from orders
select name from customers where city is distinct from 'Rome'
""",
}


def accepted(dialect: str) -> list[str]:
    return [line for line in ACCEPTED[dialect].strip().splitlines() if line]
