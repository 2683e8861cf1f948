//! Rows written by a view for programs read back unchanged.

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_schema::{Schema, SchemaRef};
use hodo_model::{
    Column, Shape, Summary, Table, Type, Unit, Value,
    table::{
        TableBuilder, cells,
        metadata::{ColumnMetadata, LOSS, SUMMARY, TableMetadata, loss_json, summary_json},
    },
};
use hodo_views::{Options, Reader, VIEWS, View};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use super::{draw, draw_bytes, drawn_by, functions, tree, types, view};

/// A column of each type; `depth` makes the table a tree.
fn columns() -> Vec<Column> {
    vec![
        Column::integer("depth", Unit::None),
        Column::name("name"),
        Column::text("text"),
        Column::integer("begin_ns", Unit::Nanoseconds).secondary(),
        Column::signed("result", Unit::None),
        Column::real("share", Unit::Share),
        Column::boolean("is_idle"),
        Column::list("cpus", &Type::Integer, Unit::None),
        Column::list("offsets", &Type::Signed, Unit::Bytes),
        Column::list("names", &Type::Text, Unit::None),
    ]
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![any::<String>().prop_map(Value::Text), "[,\"\r\n a|`]{0,6}".prop_map(Value::Text)]
}

/// A value of a column, sometimes null.
fn value(kind: Type) -> BoxedStrategy<Value> {
    let known = match kind {
        Type::Text | Type::Name => text().boxed(),
        Type::Integer => any::<u64>().prop_map(Value::Integer).boxed(),
        Type::Signed => any::<i64>().prop_map(Value::Signed).boxed(),
        Type::Real => prop_oneof![
            // Short fractions, as serde_json reads long ones with an error in the last bit.
            any::<i32>().prop_map(|n| Value::Real(f64::from(n) / 256.0)),
            Just(Value::Real(f64::INFINITY)),
        ]
        .boxed(),
        Type::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Type::List(items) => prop::collection::vec(value(*items), 0..4).prop_map(Value::List).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 4 => known].boxed()
}

pub(crate) fn table() -> impl Strategy<Value = Table> {
    let row: Vec<_> = columns().iter().map(|column| value(column.kind)).collect();
    let figures = (value(Type::Integer), value(Type::Text), value(Type::Signed));
    (prop::collection::vec(row, 0..8), figures, any::<bool>()).prop_map(|(rows, figures, is_tree)| {
        let summary = vec![("figure_ns", figures.0), ("text", figures.1), ("signed", figures.2)];
        let shape = if is_tree { Shape::Tree } else { Shape::Points };
        Table::new("any", shape, summary, columns(), rows)
    })
}

/// The JSON value of a cell; JSON has no infinity.
fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Text(text) => text.as_str().into(),
        Value::Integer(integer) => (*integer).into(),
        Value::Signed(integer) => (*integer).into(),
        Value::Real(real) => (*real).into(),
        Value::Boolean(truth) => (*truth).into(),
        Value::List(items) => items.iter().map(as_json).collect(),
    }
}

/// The CSV field of a cell.
fn as_csv(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Text(text) => Some(text.clone()),
        Value::Integer(integer) => Some(integer.to_string()),
        Value::Signed(integer) => Some(integer.to_string()),
        Value::Real(real) => real.is_finite().then(|| real.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::List(_) => Some(as_json(value).to_string()),
    }
}

/// Parses RFC 4180 fields; an empty one without quotes is `None`.
fn parse_csv(text: &str) -> Vec<Vec<Option<String>>> {
    let mut records = vec![];
    let mut record = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let field = if let Some(mut quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            loop {
                let (part, after) = quoted.split_once('"').unwrap();
                field.push_str(part);
                match after.strip_prefix('"') {
                    Some(more) => {
                        field.push('"');
                        quoted = more;
                    }
                    None => {
                        rest = after;
                        break Some(field);
                    }
                }
            }
        } else {
            let end = rest.find([',', '\n']).unwrap();
            let (field, after) = rest.split_at(end);
            rest = after;
            (!field.is_empty()).then(|| field.to_owned())
        };
        record.push(field);
        if rest.starts_with('\n') {
            records.push(std::mem::take(&mut record));
        }
        rest = &rest[1..];
    }
    records
}

/// The content of a file.
struct FileContent {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Summary and loss, from the footer.
    footer: [Option<String>; 2],
}

impl FileContent {
    fn rows(&self) -> Vec<Vec<Value>> {
        let mut rows = Vec::new();
        for batch in &self.batches {
            let columns = cells(batch);
            let row = |row| columns.iter().map(|column| column.cell(row).to_value()).collect();
            rows.extend((0..batch.num_rows()).map(row));
        }
        rows
    }
}

fn read_arrow(bytes: Vec<u8>) -> FileContent {
    let reader = FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    let footer = [SUMMARY, LOSS].map(|key| reader.custom_metadata().get(key).cloned());
    let schema = reader.schema();
    FileContent { schema, batches: reader.map(Result::unwrap).collect(), footer }
}

fn read_parquet(bytes: Vec<u8>) -> FileContent {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
    let of_key = |key: &str| metadata.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone());
    let footer = [SUMMARY, LOSS].map(of_key);
    let schema = SchemaRef::clone(reader.schema());
    let reader = reader.build().unwrap();
    FileContent { schema, batches: reader.map(Result::unwrap).collect(), footer }
}

/// Checks that a schema describes a table.
fn check_schema(schema: &Schema, table: &Table) {
    assert_eq!((schema.table_name(), schema.shape()), (table.name(), table.shape()));
    let own = table
        .columns()
        .iter()
        .map(|column| (column.name, column.kind.arrow(), column.unit, column.secondary));
    let found = schema
        .fields()
        .iter()
        .map(|field| (field.name().as_str(), field.data_type().clone(), field.unit(), field.is_secondary()));
    assert_eq!(found.collect::<Vec<_>>(), own.collect::<Vec<_>>());
}

fn is_json_of(text: Option<&str>, summary: &Summary) {
    let found: serde_json::Value = serde_json::from_str(text.unwrap()).unwrap();
    let own: serde_json::Map<_, _> =
        summary.iter().map(|(name, value)| ((*name).to_owned(), as_json(value))).collect();
    assert_eq!(found, serde_json::Value::Object(own));
}

fn json_has_every_value(table: &Table) {
    let parsed: serde_json::Value = serde_json::from_str(&draw("json", table, Options::default())).unwrap();
    let rows: Vec<Vec<serde_json::Value>> =
        table.rows().iter().map(|row| row.iter().map(as_json).collect()).collect();
    assert_eq!(&parsed["rows"], &serde_json::json!(rows));
    is_json_of(Some(&parsed["summary"].to_string()), &table.summary);
}

fn jsonl_has_every_value(table: &Table) {
    let lines = draw("jsonl", table, Options::default());
    assert_eq!(lines.lines().count(), table.row_count());
    for (line, row) in lines.lines().zip(&table.rows()) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        for (column, value) in table.columns().iter().zip(row) {
            assert_eq!(object[column.name], as_json(value));
        }
    }
}

fn csv_has_every_value(table: &Table) {
    let records = parse_csv(&draw("csv", table, Options::default()));
    assert_eq!(records.len(), table.row_count() + 1);
    for (record, row) in records.iter().skip(1).zip(&table.rows()) {
        assert_eq!(record, &row.iter().map(as_csv).collect::<Vec<_>>());
    }
}

fn parquet_has_every_value(table: &Table) {
    let found = read_parquet(draw_bytes("parquet", table, Options::default()));
    has_every_value_type_and_unit(&found, table);
    assert_eq!(found.footer, [Some(summary_json(&table.summary)), Some(loss_json(&table.loss))]);
}

fn has_every_value_type_and_unit(found: &FileContent, table: &Table) {
    check_schema(&found.schema, table);
    is_json_of(found.schema.summary_json(), &table.summary);
    assert_eq!(found.rows(), table.rows());
}

/// Checks that a file has all rows, and the summary and the losses in its footer.
fn is_whole(found: &FileContent, table: &Table) {
    assert_eq!(found.rows(), table.rows());
    assert_eq!(found.footer, [Some(summary_json(&table.summary)), Some(loss_json(&table.loss))]);
}

/// Reads what a view wrote of a table, and compares it with the table.
type Compare = fn(&Table);

/// The readers of the views for programs.
const READERS: &[(&str, Compare)] = &[
    ("json", json_has_every_value),
    ("jsonl", jsonl_has_every_value),
    ("csv", csv_has_every_value),
    ("arrow", |table| {
        has_every_value_type_and_unit(&read_arrow(draw_bytes("arrow", table, Options::default())), table);
    }),
    ("parquet", parquet_has_every_value),
    // These draw only some columns; other tests check them.
    ("folded", |_| ()),
    ("sunburst", |_| ()),
    ("svg", |_| ()),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_read_every_value(table in table()) {
        for View { name, .. } in VIEWS.iter().filter(|view| view.reader != Reader::People) {
            let reader = READERS.iter().find(|(view, _)| view == name);
            reader.unwrap_or_else(|| panic!("the view {name} is for programs: READERS lacks its reader")).1(&table);
        }
    }

    #[test]
    fn a_table_that_comes_batch_by_batch_has_the_same_rows(table in table(), cuts in any::<[bool; 8]>()) {
        let drawn = |view: &View| {
            let mut out = Vec::new();
            let mut builder = TableBuilder::new(table.name(), table.shape(), columns());
            let mut drawing = view.begin(builder.schema(), &Options::default(), &mut out).map_err(|error| error.to_string())?;
            for (row, cut) in table.rows().iter().zip(cuts) {
                builder.row(row.iter().map(Value::cell));
                if cut {
                    builder.last_batch().into_iter().for_each(|batch| drawing.batch(&batch).unwrap());
                }
            }
            builder.last_batch().into_iter().for_each(|batch| drawing.batch(&batch).unwrap());
            assert!(builder.last_batch().is_none());
            drawing.end(&table.summary, &table.loss).map_err(|error| error.to_string())?;
            Ok(out)
        };
        let parse = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        for view in VIEWS {
            let whole = drawn_by(view, &table);
            match (view.name, drawn(view)) {
                ("json", parts) => prop_assert_eq!(parse(&parts.unwrap()), parse(&whole.unwrap())),
                // These have as many batches or groups as arrived, so their bytes differ.
                ("arrow", parts) => is_whole(&read_arrow(parts.unwrap()), &table),
                ("parquet", parts) => is_whole(&read_parquet(parts.unwrap()), &table),
                (name, parts) => prop_assert_eq!(parts, whole, "{}", name),
            }
        }
    }
}

/// A table with more rows than a batch: the batches share one dictionary, and Parquet groups have a limit.
#[test]
fn large_tables_have_several_batches_and_groups() {
    const ROWS: u64 = 200_000;
    let columns = vec![Column::integer("number", Unit::None), Column::name("name")];
    let row = |number: u64| vec![number.into(), format!("n{}", number % 1_000).into()];
    let table = Table::new("large", Shape::Counters, vec![], columns, (0..ROWS).map(row));
    assert!(table.batches().len() > 1, "{} batches", table.batches().len());
    let arrow = read_arrow(draw_bytes("arrow", &table, Options::default()));
    assert!(arrow.rows() == table.rows());
    let bytes = draw_bytes("parquet", &table, Options::default());
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes.clone())).unwrap();
    let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [122_880, 77_120]);
    assert!(read_parquet(bytes).rows() == table.rows());
}

/// A group is written once it reaches a size in bytes, however long its rows are.
#[test]
fn groups_of_parquet_are_bounded_in_bytes() {
    let mut drawn = Vec::new();
    let mut builder = TableBuilder::new("wide", Shape::Counters, vec![Column::text("text")]);
    let parquet = view("parquet");
    let mut drawing = parquet.begin(builder.schema(), &Options::default(), &mut drawn).unwrap();
    // Incompressible text: it repeats outside the compressor's window.
    let mut random = 1_u64;
    let mut digits = String::new();
    while digits.len() < 1 << 20 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        digits += &format!("{:08x}", random >> 32);
    }
    for row in 0..40_000 {
        let begin = row * 2_003 % (digits.len() - 2_000);
        builder.row([digits[begin..begin + 2_000].into()]);
        builder.full_batch().into_iter().for_each(|batch| drawing.batch(&batch).unwrap());
    }
    builder.last_batch().into_iter().for_each(|batch| drawing.batch(&batch).unwrap());
    drawing.end(&vec![], &[]).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(drawn)).unwrap();
    let groups = reader.metadata().row_groups();
    assert!(groups.len() >= 2, "{} groups", groups.len());
    assert!(groups.iter().all(|group| group.total_byte_size() < 80 << 20));
}

#[test]
fn losses_are_in_the_files() {
    let table = functions();
    let loss = loss_json(&table.loss);
    for found in [
        read_arrow(draw_bytes("arrow", &table, Options::default())),
        read_parquet(draw_bytes("parquet", &table, Options::default())),
    ] {
        assert_eq!(found.schema.metadata().get(LOSS), Some(&loss));
    }
    let parsed: serde_json::Value = serde_json::from_str(&loss).unwrap();
    assert_eq!(parsed[1]["detail"], "/usr/bin/gone: no such file");
}

/// The same table gives the same bytes: nothing depends on hash order.
#[test]
fn files_are_the_same_each_time() {
    for view in VIEWS {
        for table in [types(), functions(), tree()] {
            let first = drawn_by(view, &table);
            assert!((0..8).all(|_| drawn_by(view, &table) == first), "{}", view.name);
        }
    }
}
