//! Writes and reads a history of thread states: with the store, and with a serial state history tree as its papers
//! describe it. Prints rows per second, bytes per row, memory, and query times.
//!
//! ```text
//! cargo run -p bench --bin history -- store|tree FOLDER [ROWS [LANES [THREADS]]]
//! ```
//!
//! Each thread passes groups of states to the store in random order. The tree receives all states sorted by end; the
//! sorting is not timed.

mod states;
mod tree;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hodo_store::{Budget, Field, Kind, Lanes, Naming, Schema, Shape, Slices, Store, Table, Wanted, Writer};
use rustix::time::{ClockId, clock_gettime};
use states::State;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: history store|tree FOLDER [ROWS [LANES [THREADS]]]";
/// Queries of each kind.
const QUERIES: usize = 200;
/// Number of lanes of a picture.
const LANES: u32 = 50;
/// Number of slices of a picture.
const SLICES: usize = 1000;

/// Size of the history.
#[derive(Clone, Copy)]
struct Size {
    rows: u64,
    lanes: u32,
    threads: usize,
}

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [kind, folder, numbers @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let number = |index: usize, usual: u64| numbers.get(index).map_or(Ok(usual), |text| text.parse::<u64>());
    let (rows, lanes) = (number(0, 20_000_000)?, number(1, 1000)? as u32);
    let size = Size { rows, lanes, threads: number(2, 2)? as usize };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    match kind.as_str() {
        "store" => store(&folder, size),
        "tree" => tree(&folder, size),
        _ => Err(USAGE.into()),
    }
}

/// What a piece of work took.
#[derive(Clone, Copy)]
struct Took {
    elapsed: Duration,
    /// CPU time of all its threads; unlike the elapsed time, it does not depend on other load of the machine.
    processor: Duration,
    /// The peak of this process's private memory, in MB.
    memory: u64,
}

/// Returns the CPU time so far of this process or of this thread.
fn processor(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `work`; returns its result and what it took.
fn watched<R>(work: impl FnOnce() -> R) -> (R, Took) {
    let (peak, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                peak.fetch_max(own_memory().unwrap_or(0), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        let (begin, before) = (Instant::now(), processor(ClockId::ProcessCPUTime));
        let result = work();
        let (elapsed, processor) = (begin.elapsed(), processor(ClockId::ProcessCPUTime) - before);
        ended.store(true, Ordering::Relaxed);
        (result, Took { elapsed, processor, memory: peak.load(Ordering::Relaxed) >> 10 })
    })
}

/// Returns this process's memory without mapped files, in kB.
fn own_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn store(folder: &Path, size: Size) -> Outcome {
    let folder = folder.join("store");
    let (fed, feeding) = watched(|| feed(&folder, size));
    let (rows, writer) = fed?;
    let (finished, finishing) = watched(|| writer.finish(size.threads));
    finished?;
    let (store, opening) = watched(|| Store::open(&folder));
    let store = store?;
    let table = store.table("states").ok_or("the table is there")?;
    println!(
        "store: {rows} rows, {} lanes, {} threads: {:.2} bytes/row, opened in {:.1} ms",
        size.lanes,
        size.threads,
        store.bytes() as f64 / rows as f64,
        opening.elapsed.as_secs_f64() * 1e3,
    );
    let speed = |name: &str, times: &[Took]| {
        let memory = times.iter().map(|took| took.memory).max().unwrap_or(0);
        let sum = |time: fn(&Took) -> Duration| times.iter().map(time).sum::<Duration>().as_secs_f64();
        let (elapsed, processor) = (sum(|took| took.elapsed), sum(|took| took.processor));
        println!(
            "  {name:9} {elapsed:6.2} s: {:5.2} million rows/s; {processor:6.2} s of processors: {:5.2} million rows/s a \
             core; {memory} MB",
            rows as f64 / elapsed / 1e6,
            rows as f64 / processor / 1e6,
        );
    };
    speed("fed", &[feeding]);
    speed("finished", &[finishing]);
    speed("together", &[feeding, finishing]);
    let ((), querying) = watched(|| queries(&table, size.lanes));
    println!("  {} MB of memory while querying", querying.memory);
    Ok(())
}

/// Writes all states to a new store; returns their number and the writer.
fn feed(folder: &Path, size: Size) -> Outcome<(u64, Writer)> {
    let schema = Schema {
        name: "states".to_owned(),
        shape: Shape::Intervals,
        key: vec![Field::new("tid", Kind::Integer)],
        value: Field::new("state", Kind::Integer),
        columns: vec![Field::new("cpu", Kind::Integer)],
        naming: Naming::default(),
    };
    let writer = Writer::create(folder, "lab")?;
    let table = writer.table(&schema)?;
    let groups = states::groups(size.rows, size.lanes);
    let rows = AtomicU64::new(0);
    let work = |thread: usize| -> Result<(), hodo_store::Error> {
        let mut feed = writer.feed(table);
        let lanes = (0..size.lanes).map(|lane| feed.lane(&[Some(lane.into())]));
        let lanes: Vec<u32> = lanes.collect::<Result<_, _>>()?;
        let mut order: Vec<u64> = (0..groups).collect();
        Rng::with_seed(1).shuffle(&mut order);
        for group in order.into_iter().skip(thread).step_by(size.threads) {
            let mut result = Ok(());
            for lane in 0..size.lanes {
                states::group(lane, group, &mut |state| {
                    let span = (state.begin, state.end);
                    let pushed = feed.push(lanes[lane as usize], span, Some(state.value), &[Some(state.cpu)]);
                    result = std::mem::replace(&mut result, Ok(())).and(pushed);
                    rows.fetch_add(1, Ordering::Relaxed);
                });
            }
            result?;
        }
        feed.flush()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok((rows.into_inner(), writer))
}

/// Runs a query [`QUERIES`] times with random arguments, and prints the query times.
fn timed(name: &str, mut ask: impl FnMut(&mut Rng) -> u64) {
    let mut rng = Rng::with_seed(4);
    let (mut elapsed, mut busy) = (Vec::new(), Vec::new());
    let mut found = 0;
    for _ in 0..QUERIES {
        let (begin, before) = (Instant::now(), processor(ClockId::ThreadCPUTime));
        found += ask(&mut rng);
        elapsed.push(begin.elapsed());
        busy.push(processor(ClockId::ThreadCPUTime) - before);
    }
    elapsed.sort_unstable();
    busy.sort_unstable();
    let percentile = |times: &[Duration], percent: usize| times[QUERIES * percent / 100].as_secs_f64() * 1e3;
    let (median, high) = (percentile(&elapsed, 50), percentile(&elapsed, 95));
    let busy = percentile(&busy, 95);
    println!(
        "  {name:44} median {median:8.3} ms  p95 {high:8.3} ms, {busy:8.3} of them on a core  ({} found)",
        found / QUERIES as u64
    );
}

fn queries(table: &Table<'_>, lanes: u32) {
    let (first, last) = table.span().expect("it has rows");
    let budget = Budget { rows: u64::MAX, stop: None };
    let time = |rng: &mut Rng| first + rng.u64(0..last - first);
    let expect = "a whole store answers";
    timed("state of all lanes", |rng| table.at(time(rng), Lanes::All, &budget).expect(expect).len() as u64);
    timed("state of one lane", |rng| {
        let lane = [rng.u32(0..lanes)];
        table.at(time(rng), Lanes::Some(&lane), &budget).expect(expect).len() as u64
    });
    for (name, digits) in [("100 %", 0), ("25 %", 2), ("1.6 %", 6), ("0.02 %", 12), ("0.0004 %", 18)] {
        let span = move |rng: &mut Rng| {
            let width = ((last - first) >> digits).max(1);
            let begin = first + rng.u64(0..=last - first - width);
            (begin, begin + width)
        };
        timed(&format!("picture of {LANES} lanes, {SLICES} slices, {name}"), |rng| {
            let from = rng.u32(0..=lanes.saturating_sub(LANES));
            let some: Vec<u32> = (from..lanes.min(from + LANES)).collect();
            let picture = table.slices(span(rng), Lanes::Some(&some), SLICES, &budget).expect(expect);
            picture.iter().map(|lane| count(&lane.slices)).sum()
        });
        let wanted = move |rng: &mut Rng| Wanted { span: span(rng), ..Wanted::ALL };
        timed(&format!("10 longest, {name}"), |rng| {
            table.longest(&wanted(rng), 10, &budget).expect(expect).len() as u64
        });
        timed(&format!("100 of a bar of a histogram, {name}"), |rng| {
            let least = 100 << rng.u32(0..12);
            let wanted = Wanted { durations: least..=least + least / 10, ..wanted(rng) };
            table.records(&wanted, None, 100, &budget).expect(expect).len() as u64
        });
    }
    timed("next change of a lane", |rng| {
        let next = table.next_change(rng.u32(0..lanes), time(rng), &budget).expect(expect);
        next.is_some().into()
    });
    timed("previous change of a lane", |rng| {
        let previous = table.previous_change(rng.u32(0..lanes), time(rng), &budget).expect(expect);
        previous.is_some().into()
    });
}

fn count(slices: &Slices) -> u64 {
    match slices {
        Slices::Records(records) => records.len() as u64,
        Slices::Cells(cells) => cells.len() as u64,
    }
}

fn tree(folder: &Path, size: Size) -> Outcome {
    let groups = states::groups(size.rows, size.lanes);
    let mut all: Vec<State> = Vec::new();
    for lane in 0..size.lanes {
        (0..groups).for_each(|group| states::group(lane, group, &mut |state| all.push(state)));
    }
    all.sort_unstable_by_key(|state| (state.end, state.lane));
    let path = folder.join("tree");
    let (tree, took) = watched(|| {
        let mut builder = tree::Builder::new(&path)?;
        all.iter().try_for_each(|state| builder.add(*state))?;
        builder.finish(&path)
    });
    let tree = tree?;
    let (elapsed, processor) = (took.elapsed.as_secs_f64(), took.processor.as_secs_f64());
    println!(
        "tree: {} rows, {} lanes, one thread, sorted before: {:.2} bytes/row\n  written in {elapsed:.2} s: {:.2} million \
         rows/s; {processor:.2} s of a processor: {:.2} million rows/s",
        all.len(),
        size.lanes,
        tree.bytes() as f64 / all.len() as f64,
        all.len() as f64 / elapsed / 1e6,
        all.len() as f64 / processor / 1e6,
    );
    drop(all);
    let last = states::end(groups);
    let ask = |times: &[u64], wants: &dyn Fn(u32) -> bool| {
        let mut found = 0;
        let read = tree.at(times, &mut |tree::Interval { begin, end, lane, .. }| {
            let next = times.partition_point(|&time| time < begin);
            found += u64::from(wants(lane) && times.get(next).is_some_and(|&time| time < end));
        });
        read.expect("a whole tree answers");
        found
    };
    timed("state of all lanes", |rng| ask(&[rng.u64(0..last)], &|_| true));
    timed("state of one lane", |rng| {
        let lane = rng.u32(0..size.lanes);
        ask(&[rng.u64(0..last)], &|other| other == lane)
    });
    for (name, digits) in [("100 %", 0), ("25 %", 2), ("1.6 %", 6), ("0.02 %", 12), ("0.0004 %", 18)] {
        timed(&format!("picture of {LANES} lanes, {SLICES} times, {name}"), |rng| {
            let from = rng.u32(0..=size.lanes.saturating_sub(LANES));
            let width = (last >> digits).max(1);
            let begin = rng.u64(0..=last - width);
            let time = |step: u64| begin + (u128::from(width) * u128::from(step) / SLICES as u128) as u64;
            let times: Vec<u64> = (0..SLICES as u64).map(time).collect();
            ask(&times, &|lane| (from..from + LANES).contains(&lane))
        });
    }
    Ok(())
}
