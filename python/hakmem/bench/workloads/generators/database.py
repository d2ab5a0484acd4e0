"""Makes an SQL script that creates tables, queries, changes them, and checks every answer.

Checks are rows of a table with a CHECK constraint. If one fails, sqlite3 -bail and mariadbd --bootstrap end with status
1, and the others' output differs. Each statement is one line, as mariadbd and postgres read them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hakmem.bench.workloads.generators.text import vocabulary

ROWS_A_STATEMENT = 200


@dataclass(frozen=True)
class Dialect:
    """What the databases' languages do not share.

    before: the first statements. answers: the columns of the table of answers. value: an answer as one of these
    columns. joined: the texts of a column in one, with a separator between them. after: the last statements."""

    before: tuple[str, ...]
    answers: str
    value: str
    joined: str
    after: tuple[str, ...] = ()


SQLITE = Dialect(("pragma journal_mode = off;",),
                 "name text, found, wanted, constraint the_answer_is_wrong check (found is wanted)",
                 "{}", "group_concat({}, '{}')")
TEXTS = ("name text not null, found text not null, wanted text not null, "
         "constraint the_answer_is_wrong check (found = wanted)")
POSTGRESQL = Dialect(("set client_min_messages = error;", "drop table if exists answers, customers, orders, copied;"),
                     TEXTS, "cast({} as text)", "string_agg(cast({} as text), '{}')")
MARIADB = Dialect(("create database if not exists shop;", "use shop;", "set sql_mode = 'ANSI';",
                   "drop table if exists answers, customers, orders, copied;"),
                  TEXTS, "cast({} as char)", "group_concat({} separator '{}')", ("drop database shop;",))


def insert(table: str, rows: Sequence[tuple[object, ...]]) -> Iterator[str]:
    """Yields the statements that insert rows into a table."""
    for start in range(0, len(rows), ROWS_A_STATEMENT):
        yield f"insert into {table} values " + ",".join(map(str, rows[start : start + ROWS_A_STATEMENT])) + ";"


def make_script(seed: int, orders: int, dialect: Dialect = SQLITE) -> Iterator[str]:
    """Yields the script: customers, ten times as many orders, their items; joins, groups, updates, deletes."""
    def check(name: str, query: str, wanted: object) -> str:
        """Returns the statement that checks a query's answer."""
        found, right = (dialect.value.format(value) for value in (f"({query})", wanted))
        return f"insert into answers select '{name}', {found}, {right};"

    generator = random.Random(seed)
    words = vocabulary(generator, 2000)
    customers = [(number, " ".join(generator.choices(words, k=2)), generator.randrange(50))
                 for number in range(max(1, orders // 10))]
    placed = [(number, generator.randrange(len(customers)), generator.randint(1, 100000), generator.choice(words))
              for number in range(orders)]
    area_of = {number: area for number, _, area in customers}
    spent: dict[int, int] = {}
    sums: dict[int, int] = {}
    of_word: dict[str, int] = {}
    for _, customer, amount, word in placed:
        spent[customer] = spent.get(customer, 0) + amount
        sums[area_of[customer]] = sums.get(area_of[customer], 0) + amount
        of_word[word] = of_word.get(word, 0) + 1
    after = [(number, amount + 7 if amount % 3 == 0 else amount) for number, _, amount, _ in placed if number % 4]
    yield from (
        *dialect.before,
        f"create table answers ({dialect.answers});",
        "create table customers (id integer primary key, name varchar(40), area integer);",
        "create table orders (id integer primary key, customer integer, amount integer, word varchar(20));",
        "begin;",
    )
    yield from insert("customers", customers)
    yield from insert("orders", placed)
    yield "commit;"
    yield "create index orders_customer on orders (customer);"
    yield "create index orders_word on orders (word, amount);"
    yield check("rows", "select count(*) from orders", orders)
    yield check("sum", "select sum(amount) from orders", sum(spent.values()))
    yield check("best area", "select max(total) from (select sum(amount) as total from orders join customers "
                "on customers.id = orders.customer group by area) as areas", max(sums.values()))
    yield check("words", "select sum(n * n) from (select count(*) as n from orders group by word) as words",
                sum(count * count for count in of_word.values()))
    best = sorted(spent.items(), key=lambda pair: (-pair[1], pair[0]))[:20]
    yield check("best customers", f"select {dialect.joined.format('customer', ' ')} from (select customer from "
                "orders group by customer order by sum(amount) desc, customer limit 20) as best",
                "'" + " ".join(str(number) for number, _ in best) + "'")
    # Makes, sorts and drops text: values of many sizes on the heap.
    yield check("names", "select sum(length(found)) from (select distinct upper(name) || ':' || "
                f"{dialect.joined.format('word', ',')} as found from customers join orders on orders.customer = "
                "customers.id group by customers.id) as names",
                sum(len(customers[number][1]) + 1 + length - 1 for number, length in lengths(placed).items()))
    yield "update orders set amount = amount + 7 where amount % 3 = 0;"
    yield "delete from orders where id % 4 = 0;"
    yield check("sum after", "select sum(amount) from orders", sum(amount for _, amount in after))
    yield "create table copied as select word, amount, word || '-' || amount as label from orders order by label;"
    yield check("copied", "select count(*) || ' ' || sum(length(label)) from copied",
                f"'{len(after)} {sum(len(placed[number][3]) + 1 + len(str(amount)) for number, amount in after)}'")
    yield "select name, found from answers;"
    yield from dialect.after


def lengths(placed: Iterable[tuple[int, int, int, str]]) -> dict[int, int]:
    """Returns the length of the words that each customer ordered, with a comma after each word."""
    found: dict[int, int] = {}
    for _, customer, _, word in placed:
        found[customer] = found.get(customer, 0) + len(word) + 1
    return found
