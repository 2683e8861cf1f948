//! Computed tables as files: a second question does not read the traces again.
//!
//! A file holds two Arrow IPC streams: the schema of the whole table without rows, whose metadata hold the losses and the
//! notes too, and the rows with only those columns whose cells were read. A file that can't be read is computed again.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_buffer::Buffer;
use arrow_ipc::{
    reader::{StreamDecoder, StreamReader},
    writer::StreamWriter,
};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;
use hodo_bytes::Map;
use hodo_model::{
    Column, Loss, Table, Value,
    table::{Heading, interned, metadata::TableMetadata},
};

use crate::{NOTE, Source};

/// The most bytes of all files; older ones are removed first.
const MOST_BYTES: u64 = 4 << 30;
/// The most bytes of a table in memory that is kept.
const MOST_TABLE_BYTES: usize = 2 << 30;
/// The file with the identity of the inputs.
const IDENTITY: &str = "identity";
const EXTENSION: &str = "arrow";
/// Keys of the schema's metadata: losses and notes as JSON.
const LOSSES: &str = "hodo.losses";
const NOTES: &str = "hodo.notes";

/// A folder of tables that were computed from the same inputs.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens a folder, which is made if it is absent. Tables of inputs with another identity are removed.
    ///
    /// # Errors
    /// The folder can't be made or written.
    pub fn open(folder: PathBuf, identity: &str) -> io::Result<Arc<Cache>> {
        fs::create_dir_all(&folder)?;
        let known = folder.join(IDENTITY);
        if fs::read_to_string(&known).ok().as_deref() != Some(identity) {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == EXTENSION) {
                    fs::remove_file(path)?;
                }
            }
            fs::write(known, identity)?;
        }
        Ok(Arc::new(Cache { folder }))
    }

    /// Returns a source whose table is kept. `selection` is what else, besides the inputs, decides the rows.
    pub fn keep(self: &Arc<Self>, source: Arc<dyn Source>, selection: &str) -> Arc<dyn Source> {
        let printable = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        let name: String = source.name().chars().take(60).map(printable).collect();
        // Long names may be equal up to their sixtieth character.
        let hash = crc32fast::hash(format!("{}\n{selection}", source.name()).as_bytes());
        let file = self.folder.join(format!("{name}-{hash:08x}.{EXTENSION}"));
        Arc::new(Kept { source, file, cache: Arc::clone(self) })
    }

    /// Removes the oldest files until `bytes` more have room.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            files.push((metadata.modified()?, metadata.len(), entry.path()));
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in files {
            if total + bytes <= MOST_BYTES {
                break;
            }
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                fs::remove_file(path)?;
                total -= size;
            }
        }
        Ok(())
    }
}

/// A source with a file.
struct Kept {
    source: Arc<dyn Source>,
    file: PathBuf,
    cache: Arc<Cache>,
}

impl Source for Kept {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        match KeptTable::open(&self.file) {
            Some(kept) => Ok(kept.columns),
            None => self.source.columns(),
        }
    }

    fn expect(&self, read: Option<&[bool]>) {
        let lacks = read.and_then(|read| self.lacks(read));
        self.source.expect(lacks.as_deref());
    }

    fn table(&self, read: &[bool]) -> Result<Table, String> {
        let lacks = self.lacks(read);
        if lacks.is_none()
            && let Some(table) = KeptTable::open(&self.file).and_then(|kept| kept.read(read))
        {
            return Ok(table);
        }
        let mut wanted = lacks.unwrap_or_else(|| read.to_vec());
        let table = self.source.table(&wanted)?;
        if self.source.has_all_columns() {
            wanted.fill(true);
        }
        // A cache that can't be written costs time only.
        let _ = self.save(&table, &wanted);
        Ok(table)
    }

    fn has_all_columns(&self) -> bool {
        // A file may be read in part.
        false
    }
}

impl Kept {
    /// The columns to compute: those that are read and those that the file has; `None` if it has all.
    fn lacks(&self, read: &[bool]) -> Option<Vec<bool>> {
        let Some(kept) = KeptTable::open(&self.file) else { return Some(read.to_vec()) };
        let has = kept.has();
        let lacks = read.iter().zip(&has).any(|(read, has)| *read && !has);
        lacks.then(|| read.iter().zip(has).map(|(read, has)| *read || has).collect())
    }

    /// Writes a file with some columns of a table.
    fn save(&self, table: &Table, columns: &[bool]) -> Result<(), ArrowError> {
        let bytes: usize = table.batches().iter().map(RecordBatch::get_array_memory_size).sum();
        if bytes > MOST_TABLE_BYTES {
            return Ok(());
        }
        self.cache.make_room(bytes as u64)?;
        let mut whole = Schema::clone(&table.schema());
        let json = |error: serde_json::Error| ArrowError::JsonError(error.to_string());
        whole.metadata.insert(LOSSES.to_owned(), serde_json::to_string(&table.loss).map_err(json)?);
        let notes: Vec<&str> = table.summary.iter().filter_map(note).collect();
        whole.metadata.insert(NOTES.to_owned(), serde_json::to_string(&notes).map_err(json)?);
        let has: Vec<usize> = (0..columns.len()).filter(|&column| columns[column]).collect();
        let part = self.file.with_extension(format!("part-{}", std::process::id()));
        let mut out = BufWriter::new(File::create(&part)?);
        StreamWriter::try_new(&mut out, &whole)?.finish()?;
        let mut rows = StreamWriter::try_new(&mut out, &Schema::clone(&table.schema()).project(&has)?)?;
        for batch in table.batches() {
            rows.write(&batch.project(&has)?)?;
        }
        rows.finish()?;
        out.flush()?;
        Ok(fs::rename(part, &self.file)?)
    }
}

fn note<'n>((name, value): &'n (&'static str, Value)) -> Option<&'n str> {
    match value {
        Value::Text(text) if *name == NOTE => Some(text),
        _ => None,
    }
}

/// A file whose schemas were read.
struct KeptTable {
    /// The schema of the whole table.
    whole: SchemaRef,
    columns: Vec<Column>,
    /// The schema of the rows, and their stream.
    rows: SchemaRef,
    stream: Buffer,
}

impl KeptTable {
    fn open(path: &Path) -> Option<KeptTable> {
        let file = Bytes::from_owner(Map::open(path).ok()?);
        let mut unread: &[u8] = &file;
        let mut first = StreamReader::try_new(&mut unread, None).ok()?;
        let whole = first.schema();
        if first.next().is_some() {
            return None;
        }
        let begin = file.len() - unread.len();
        let rows = StreamReader::try_new(unread, None).ok()?.schema();
        let columns = whole.fields().iter().map(|field| Column::of_field(field)).collect::<Option<_>>()?;
        Some(KeptTable { whole, columns, rows, stream: Buffer::from(file).slice(begin) })
    }

    /// By column of the table: whether the file has its cells.
    fn has(&self) -> Vec<bool> {
        self.columns.iter().map(|column| self.rows.index_of(column.name).is_ok()).collect()
    }

    /// Reads some of the columns; the cells of others are null. Batches share the memory of the file.
    fn read(&self, read: &[bool]) -> Option<Table> {
        let heading = Heading {
            name: interned(self.whole.table_name()),
            shape: self.whole.shape(),
            columns: self.columns.clone(),
        };
        let mut builder = heading.builder();
        let schema = Arc::clone(builder.schema());
        let (mut stream, mut decoder) = (self.stream.clone(), StreamDecoder::new());
        if !stream.ends_with(END) {
            return None;
        }
        while let Some(batch) = decoder.decode(&mut stream).ok()? {
            let rows = batch.num_rows();
            let cells = schema.fields().iter().zip(read).map(|(field, is_read)| {
                let cells = batch.column_by_name(field.name()).filter(|_| *is_read);
                cells.map_or_else(|| new_null_array(field.data_type(), rows), Arc::clone)
            });
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), cells.collect(), &options);
            builder.add_batch(&batch.ok()?);
        }
        decoder.finish().ok()?;
        let metadata = |key: &str| self.whole.metadata().get(key);
        let losses: Vec<Loss> = serde_json::from_str(metadata(LOSSES)?).ok()?;
        let notes: Vec<String> = serde_json::from_str(metadata(NOTES)?).ok()?;
        let summary = notes.into_iter().map(|note| (NOTE, Value::from(note))).collect();
        Some(builder.finish(summary).with_loss(losses))
    }
}

/// What a stream ends with: a message of no bytes (Arrow IPC format, "IPC Streaming Format").
const END: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hodo_model::{Cause, Shape, Unit};

    use super::*;

    /// Counts how often it is computed.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Source for Counted {
        fn name(&self) -> &str {
            "app:counted"
        }

        fn columns(&self) -> Result<Vec<Column>, String> {
            Ok(vec![
                Column::signed("begin_ns", Unit::Nanoseconds),
                Column::name("name"),
                Column::list("list", &hodo_model::Type::Integer, Unit::Count),
                Column::text("text").secondary(),
            ])
        }

        fn table(&self, read: &[bool]) -> Result<Table, String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let row = |n: i64| {
                let cells = [
                    Value::Signed(n),
                    format!("n{}", n % 3).into(),
                    vec![1u64, n as u64].into(),
                    format!("text {n}").into(),
                ];
                cells
                    .into_iter()
                    .zip(read)
                    .map(|(cell, read)| if *read { cell } else { Value::Null })
                    .collect()
            };
            let loss = Loss {
                stream: "s".to_owned(),
                cause: Cause::Overflow,
                bytes: 0..1,
                time: None,
                count: 2,
                detail: "two".to_owned(),
            };
            let summary = vec![(NOTE, Value::from("cut")), ("rows", Value::Integer(9))];
            let table = Table::new("counted", Shape::Points, summary, self.columns()?, (0..100_000).map(row));
            Ok(table.with_loss(vec![loss]))
        }
    }

    #[test]
    fn a_kept_table_is_the_computed_one() {
        let folder = tempfile::tempdir().expect("there is room");
        let open = |identity: &str| Cache::open(folder.path().join("sql"), identity).expect("it is writable");
        let counted = Arc::new(Counted::default());
        let source = |cache: &Arc<Cache>, selection: &str| {
            cache.keep(Arc::clone(&counted) as Arc<dyn Source>, selection)
        };
        let times = || counted.0.swap(0, Ordering::Relaxed);
        let first = source(&open("one"), "");
        let part = [true, true, false, false];
        let computed = first.table(&part).expect("it is computed");
        assert_eq!(times(), 1);
        // Another process finds it, with its notes and losses.
        let again = source(&open("one"), "");
        let kept = again.table(&part).expect("it is kept");
        assert_eq!((kept.rows(), &kept.loss), (computed.rows(), &computed.loss));
        assert_eq!((again.columns(), kept.figure(NOTE)), (counted.columns(), computed.figure(NOTE)));
        assert_eq!(kept.name(), "counted");
        assert_eq!(again.table(&[false; 4]).expect("it is kept").row_count(), 100_000);
        assert_eq!(times(), 0);
        // Further columns are computed once, together with those before.
        let all = again.table(&[false, false, true, true]).expect("it is computed");
        assert_eq!(times(), 1);
        assert_eq!(again.table(&[true; 4]).expect("it is kept").rows(), all.rows());
        assert_eq!(all.rows()[4][..2], [Value::Signed(4), Value::from("n1")]);
        assert_eq!(times(), 0);
        // Neither another selection nor other inputs have it, and a damaged file is computed again.
        source(&open("one"), "tid 3").table(&part).expect("it is computed");
        source(&open("two"), "").table(&part).expect("it is computed");
        assert_eq!(times(), 2);
        for entry in fs::read_dir(folder.path().join("sql")).expect("it is there") {
            let path = entry.expect("it is there").path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                let bytes = fs::read(&path).expect("it is a file");
                fs::write(path, &bytes[..bytes.len() / 2]).expect("it is writable");
            }
        }
        source(&open("two"), "").table(&part).expect("it is computed");
        assert_eq!(times(), 1);
    }
}
