// crate: libsqlite3-sys 0.36.0
// sources: sqlite3/sqlite3.c
// flags: -Isqlite3 -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION
#include "sqlite3.h"

static const char statements[] =
    "create table item(id integer primary key, name text, price real);"
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 800)"
    " insert into item select i, 'item' || (i * 7919 % 800), i * 1.5 from n;"
    "create index by_name on item(name);"
    "update item set price = price * 1.1 where name like 'item1%';"
    "delete from item where id % 7 = 0;"
    "create table total as select substr(name, 5, 1) as digit, count(*) as count, sum(price) as sum from item group by digit;"
    "select * from item join total on substr(item.name, 5, 1) = total.digit order by item.name, total.sum limit 200;";

int main(void) {
    sqlite3 *database;
    if (sqlite3_open(":memory:", &database)) return 1;
    if (sqlite3_exec(database, statements, 0, 0, 0)) return 2;
    return sqlite3_close(database);
}
