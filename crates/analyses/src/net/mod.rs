//! `net`: how many packets and bytes passed each network device, and which threads sent and received them?
//!
//! A packet is sent when it is passed to a device (`net_dev_queue`), and received when it comes from one
//! (`netif_receive_skb`); its bytes are its length at that time. A packet counts to the thread that runs on the CPU:
//! for received packets, this is mostly the interrupted thread.

use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Shape, Start,
    Table, Takes, Unit, Value,
    kernel::{Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::most_first,
    durations::{Add, add_all, add_fields},
    per_thread_sums::{PerThreadSums, RowsOf},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Network;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "net",
            help: "kernel events: packets and bytes through network devices",
            views: &["device", "process", "thread"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |_| Made::of_events(Network),
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct PacketCounts {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
}

add_fields!(PacketCounts { sent, sent_bytes, received, received_bytes });

/// Packet counts by thread and device name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetTraffic(PerThreadSums<String, PacketCounts>);

impl Analysis for Network {
    type Partial = NetTraffic;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[
            (Kind::NetQueue, &[field::net::NAME, field::net::LEN]),
            (Kind::NetReceive, &[field::net::NAME, field::net::LEN]),
        ])
    }

    fn begin(&self, _: &Start<'_>) -> NetTraffic {
        NetTraffic::default()
    }

    fn fold(&self, partial: &mut NetTraffic, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if !matches!(event.kind, Kind::NetQueue | Kind::NetReceive) {
            return;
        }
        let device = String::from_utf8_lossy(event.text(field::net::NAME).unwrap_or_default()).into_owned();
        let bytes = event.integer(field::net::LEN).and_then(|length| u64::try_from(length).ok()).unwrap_or(0);
        partial.0.of(event.thread, event.cpu, device).add(match event.kind {
            Kind::NetQueue => PacketCounts { sent: 1, sent_bytes: bytes, ..PacketCounts::default() },
            _ => PacketCounts { received: 1, received_bytes: bytes, ..PacketCounts::default() },
        });
    }

    fn merge(&self, mut earlier: NetTraffic, later: NetTraffic, threads: &Threads) -> NetTraffic {
        earlier.0.add(later.0, threads);
        earlier
    }

    fn finish(&self, partials: Vec<NetTraffic>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let threads = context.threads;
        let rows_of = match context.selection.view.as_str() {
            "process" => Some(RowsOf::Processes),
            "thread" => Some(RowsOf::Threads),
            _ => None,
        };
        let mut all = PacketCounts::default();
        let mut rows: FxHashMap<(Option<Thread>, String), PacketCounts> = FxHashMap::default();
        for (key, packets) in whole.0.wanted(context) {
            all.add(*packets);
            let owner = rows_of.map(|rows_of| rows_of.of(threads, key.thread));
            add_all(&mut rows, [((owner, key.key.clone()), *packets)]);
        }
        let cells = |packets: &PacketCounts| {
            [packets.sent_bytes, packets.received_bytes, packets.sent, packets.received].map(Value::from)
        };
        let names = ["sent_bytes", "received_bytes", "packets_sent", "packets_received"];
        let summary = names.into_iter().zip(cells(&all)).collect();
        let mut columns: Vec<Column> = rows_of.map_or(Vec::new(), RowsOf::columns);
        columns.push(Column::name("device"));
        columns.extend(names[..2].iter().map(|name| Column::integer(name, Unit::Bytes)));
        columns.extend(names[2..].iter().map(|name| Column::integer(name, Unit::Count)));
        let rows = most_first(rows.into_iter().map(|((owner, device), packets)| {
            let cells_of = rows_of.zip(owner);
            let mut row = cells_of.map_or(Vec::new(), |(rows_of, owner)| rows_of.cells(threads, owner));
            row.push(device.as_str().into());
            row.extend(cells(&packets));
            ((packets.sent_bytes.saturating_add(packets.received_bytes), (owner, device)), row)
        }));
        Table::new("net", Shape::Counters, summary, columns, rows)
    }
}
