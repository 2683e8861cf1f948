//! `wakers`: which thread woke which other thread, how often, and how long did the woken thread wait for a CPU?
//!
//! The waker is the thread that ran on the CPU of a `sched_wakeup` or `sched_wakeup_new`; wake-ups by interrupts count
//! to the interrupted thread. The latency lasts from a thread's last wake-up to the `sched_switch` to it.

mod wakeups;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, LaneValue, Lanes, Made, Report,
    Role, Shape, Start, Table, Takes, Unit, Value,
    kernel::{Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{duration_cells, duration_columns, most_first},
    durations::{Durations, add_all, add_fields},
    per_thread_sums::PerThreadSums,
};

pub use wakeups::EachWakeup;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Wakers;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "wakers",
            help: "kernel events: which thread woke which other thread, how often, and how long it then waited for a CPU",
            views: &["pair", "wakeup"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            roles: &[Role::Wakeups],
            lanes: Some(Lanes {
                view: "wakeup",
                title: "wake-ups",
                lane: &["waker_pid", "waker_tid", "waker"],
                value: LaneValue::Lane(&["woken_pid", "woken_tid", "woken"]),
                path: &["Threads", "process {waker_pid}", "{waker} ({waker_tid})"],
            }),
        },
        make: |parameters| match parameters.view() {
            "wakeup" => Made::of_events(EachWakeup),
            _ => Made::of_events(Wakers),
        },
    }
}

/// Wake-ups of one thread by another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct WakeupSums {
    count: u64,
    latencies: Durations,
}

add_fields!(WakeupSums { count, latencies });

/// A wake-up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Woken {
    time: Nanos,
    waker: Thread,
    cpu: u32,
}

/// The wake-ups of a thread.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Sleeper {
    /// Whether an event named the thread; if not, it may have been woken before.
    is_named: bool,
    /// Time of the first switch to it, if it may have been woken before that.
    came: Option<Nanos>,
    /// Its last wake-up, if it has not run since then.
    woken: Option<Woken>,
}

/// The wake-ups after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WakersPartial {
    /// Wake-ups by waker, the waker's CPU and the tid of the woken thread.
    wakeups: PerThreadSums<u32, WakeupSums>,
    /// By tid.
    sleepers: FxHashMap<u32, Sleeper>,
}

impl WakersPartial {
    fn comes(&mut self, tid: u32, time: Nanos) {
        let sleeper = self.sleepers.entry(tid).or_default();
        let was_named = std::mem::replace(&mut sleeper.is_named, true);
        match sleeper.woken.take() {
            Some(Woken { time: woken, waker, cpu }) => {
                let latency = time.0.saturating_sub(woken.0);
                self.wakeups.of(waker, cpu, tid).latencies.see(latency);
            }
            None if !was_named => sleeper.came = Some(time),
            None => {}
        }
    }

    fn leaves(&mut self, tid: u32) {
        let sleeper = self.sleepers.entry(tid).or_default();
        (sleeper.is_named, sleeper.woken) = (true, None);
    }
}

impl Analysis for Wakers {
    type Partial = WakersPartial;

    fn interest(&self) -> Interest<'_> {
        use field::{switch, wakeup};
        Interest::events(&[
            (Kind::SchedSwitch, &[switch::PREV_TID, switch::NEXT_TID]),
            (Kind::SchedWakeup, &[wakeup::TID]),
        ])
    }

    fn begin(&self, _: &Start<'_>) -> WakersPartial {
        WakersPartial::default()
    }

    fn fold(&self, partial: &mut WakersPartial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let known = |thread: Thread| thread.tid().filter(|&tid| tid != 0);
        if let Some((prev, next)) = event.switch() {
            known(prev).into_iter().for_each(|tid| partial.leaves(tid));
            known(next).into_iter().for_each(|tid| partial.comes(tid, event.time));
        } else if let (Kind::SchedWakeup, Some(tid)) = (event.kind, event.integer(field::wakeup::TID)) {
            let tid = tid as u32;
            partial.wakeups.of(event.thread, event.cpu, tid).count += 1;
            let sleeper = partial.sleepers.entry(tid).or_default();
            let woken = Woken { time: event.time, waker: event.thread, cpu: event.cpu };
            (sleeper.is_named, sleeper.woken) = (true, Some(woken));
        }
    }

    fn merge(&self, mut earlier: WakersPartial, later: WakersPartial, threads: &Threads) -> WakersPartial {
        earlier.wakeups.add(later.wakeups, threads);
        for (tid, sleeper) in later.sleepers {
            // What the later partial could not decide: whether a thread that came first was woken here.
            match sleeper.came {
                Some(time) => earlier.comes(tid, time),
                None => earlier.leaves(tid),
            }
            let woken = sleeper.woken.map(|woken| Woken { waker: threads.known(woken.waker), ..woken });
            earlier.sleepers.entry(tid).or_default().woken = woken;
        }
        earlier
    }

    fn finish(&self, partials: Vec<WakersPartial>, context: &FinishContext<'_>) -> Table {
        let partial = only(partials);
        let mut pairs: FxHashMap<(Thread, u32), WakeupSums> = FxHashMap::default();
        add_all(
            &mut pairs,
            partial.wakeups.into_wanted(context).map(|(key, wakeups)| ((key.thread, key.key), wakeups)),
        );
        let known = |value: u64| if context.wakeups.are_known() { value.into() } else { Value::Null };
        let summary = vec![
            ("wakeups", known(pairs.values().map(|wakeups| wakeups.count).sum::<u64>())),
            ("pairs", known(pairs.len() as u64)),
        ];
        let mut columns = vec![
            Column::name("waker"),
            Column::integer("waker_tid", Unit::None),
            Column::name("woken"),
            Column::integer("woken_tid", Unit::None),
            Column::integer("count", Unit::Count),
        ];
        columns.extend(duration_columns());
        let rows = most_first(pairs.into_iter().map(|((waker, tid), wakeups)| {
            let woken = Thread::new(tid.into(), 0);
            let mut row = vec![
                context.threads.comm(waker).into(),
                waker.tid().into(),
                context.threads.comm(woken).into(),
                tid.into(),
                wakeups.count.into(),
            ];
            row.extend(duration_cells(&wakeups.latencies));
            ((wakeups.count, (waker, tid)), row)
        }));
        Table::new("wakers", Shape::Counters, summary, columns, rows)
    }
}
