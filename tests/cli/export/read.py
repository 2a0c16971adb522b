"""read.py DOCUMENT: runs the SQL and Python blocks of a document in the working directory, and prints what other readers
see of the tables there, as JSON."""

import contextlib
import io
import json
import re
import sys

import duckdb
import polars

blocks = re.findall(r"^```(sql|python)\n(.*?)^```$", open(sys.argv[1], encoding="utf-8").read(), re.S | re.M)
answers = []
for language, text in blocks:
    if language == "sql":
        for statement in filter(str.strip, text.split(";")):
            answers.append([[str(value) for value in row] for row in duckdb.sql(statement).fetchall()])
    else:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(text, {})
        answers.append(printed.getvalue())

seen = {}
for table in ["profiles", "objects", "tallies", "allocations", "threads", "verdicts"]:
    scanned = {
        "duckdb": duckdb.sql(f"SELECT count(*) FROM 'tables/{table}.parquet'").fetchall()[0][0],
        "duckdb_glob": duckdb.sql(f"SELECT count(*) FROM 'rank.*/{table}.parquet'").fetchall()[0][0],
        "duckdb_csv": duckdb.sql(f"SELECT count(*) FROM read_csv('csv/{table}.csv', header=true)").fetchall()[0][0],
        "polars": polars.scan_parquet(f"tables/{table}.parquet").select(polars.len()).collect().item(),
        "polars_glob": polars.scan_parquet(f"rank.*/{table}.parquet").select(polars.len()).collect().item(),
        "polars_csv": polars.scan_csv(f"csv/{table}.csv", infer_schema_length=None).select(polars.len()).collect().item(),
    }
    seen[table] = scanned
sums = {
    "duckdb": duckdb.sql("SELECT sum(cost_ns)::BIGINT FROM 'rank.*/tallies.parquet'").fetchall()[0][0],
    "duckdb_csv": duckdb.sql("SELECT sum(cost_ns)::BIGINT FROM 'csv/tallies.csv'").fetchall()[0][0],
    "polars": polars.scan_parquet("rank.*/tallies.parquet").select(polars.col("cost_ns").sum()).collect().item(),
}
names = polars.read_parquet("tables/objects.parquet")["name"].to_list()
same = names == polars.read_csv("csv/objects.csv", infer_schema_length=None)["name"].to_list()
print(json.dumps({"answers": answers, "rows": seen, "sums": sums, "names": names, "csv_names_are_the_same": same}))
