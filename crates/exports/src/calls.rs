//! Begins and ends of calls as slices: without those that are too short, and with gaps shown as slices.

use std::io;

use crate::{Timeline, Track};

/// The name of the slices in gaps, where flow is missing, and its number.
const LOST: &str = "[lost]";
const LOST_NUMBER: u32 = 0;
/// The shortest time between two values of a counter of instructions, in nanoseconds.
const COUNTER_PERIOD: u64 = 10_000;

/// An open call.
struct Open {
    /// When it began; `None` if no time was known.
    begin: Option<u64>,
    name: u32,
}

/// Instructions at the end of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instructions {
    /// Those of the call and its callees.
    pub of_call: u64,
    /// All that the thread has executed.
    pub of_thread: u64,
}

/// The open calls of a thread.
#[derive(Default)]
struct Thread {
    open: Vec<Open>,
    /// How many open calls, from the oldest on, need no further look: they are written, or have no known begin.
    settled: usize,
    /// The last known time.
    now: Option<u64>,
    /// When the gap began, if one is open.
    lost_since: Option<u64>,
    /// When its instructions were last written.
    counted: Option<u64>,
}

/// Writes calls to a timeline, without those that are too short.
pub struct Calls<'t> {
    timeline: Box<dyn Timeline + 't>,
    /// The length of the shortest call that is written, in nanoseconds.
    shortest: u64,
    threads: Vec<Thread>,
    /// Calls that are left out because they are too short.
    pub left_out: u64,
    /// Calls that are left out because their times are unknown.
    pub untimed: u64,
}

impl<'t> Calls<'t> {
    /// Writes to `timeline`. Calls that take fewer nanoseconds than `shortest` are left out.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut timeline: Box<dyn Timeline + 't>, shortest: u64) -> io::Result<Calls<'t>> {
        timeline.name(LOST)?;
        Ok(Calls { timeline, shortest, threads: Vec::new(), left_out: 0, untimed: 0 })
    }

    /// Adds the next thread.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin_track(&mut self, track: &Track) -> io::Result<()> {
        self.threads.push(Thread::default());
        self.timeline.begin_track(track)
    }

    /// Adds the next name, from number 1.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn name(&mut self, name: &str) -> io::Result<()> {
        self.timeline.name(name)
    }

    /// Begins a call.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin(&mut self, track: u32, time: Option<u64>, name: u32) -> io::Result<()> {
        let now = self.reach(track, time)?;
        let thread = &mut self.threads[track as usize];
        if let Some((since, now)) = thread.lost_since.take().zip(now)
            && since < now
        {
            self.timeline.begin(track, since, LOST_NUMBER)?;
            self.timeline.end(track, now)?;
        }
        thread.open.push(Open { begin: now, name });
        self.write_begins(track, now)
    }

    /// Ends the newest open call.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn end(&mut self, track: u32, time: Option<u64>, instructions: Instructions) -> io::Result<()> {
        let now = self.reach(track, time)?;
        let thread = &mut self.threads[track as usize];
        let Some(open) = thread.open.pop() else { return Ok(()) };
        let is_settled = thread.settled > thread.open.len();
        thread.settled = thread.settled.min(thread.open.len());
        match (open.begin, now) {
            (Some(_), Some(now)) if is_settled => {
                self.timeline.end_counted(track, now, instructions.of_call)?;
                return self.count(track, now, instructions.of_thread);
            }
            (Some(_), _) => self.left_out += 1,
            (None, _) => self.untimed += 1,
        }
        Ok(())
    }

    /// Writes how many instructions the thread executed, unless it was written just before.
    fn count(&mut self, track: u32, now: u64, executed: u64) -> io::Result<()> {
        let thread = &mut self.threads[track as usize];
        if thread.counted.is_some_and(|counted| now < counted + COUNTER_PERIOD) {
            return Ok(());
        }
        thread.counted = Some(now);
        self.timeline.executed(track, now, executed)
    }

    /// Begins a gap, in which flow is missing. The next call ends it.
    pub fn gap(&mut self, track: u32) {
        let thread = &mut self.threads[track as usize];
        thread.lost_since = thread.lost_since.or(thread.now);
    }

    /// Returns the timeline, to end it.
    pub fn into_timeline(self) -> Box<dyn Timeline + 't> {
        self.timeline
    }

    /// Moves a thread's clock, which never goes back. Returns its time, if known.
    fn reach(&mut self, track: u32, time: Option<u64>) -> io::Result<Option<u64>> {
        let thread = &mut self.threads[track as usize];
        thread.now = thread.now.max(time);
        let now = thread.now;
        self.write_begins(track, now)?;
        Ok(now)
    }

    /// Writes the begins of the open calls that are long enough by now. It stops at the first one that is not: the calls
    /// inside it are shorter.
    fn write_begins(&mut self, track: u32, now: Option<u64>) -> io::Result<()> {
        let Some(now) = now else { return Ok(()) };
        let thread = &mut self.threads[track as usize];
        while let Some(open) = thread.open.get(thread.settled) {
            match open.begin {
                Some(begin) if now - begin < self.shortest => break,
                Some(begin) => self.timeline.begin(track, begin, open.name)?,
                None => {}
            }
            thread.settled += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hodo_model::Loss;

    use super::*;

    #[derive(Clone, Default)]
    struct Emitted(Arc<Mutex<Vec<String>>>);

    impl Emitted {
        fn emit(&self, line: String) -> io::Result<()> {
            self.0.lock().unwrap().push(line);
            Ok(())
        }
    }

    impl Timeline for Emitted {
        fn begin_track(&mut self, _: &Track) -> io::Result<()> {
            Ok(())
        }

        fn name(&mut self, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn begin(&mut self, _: u32, time: u64, name: u32) -> io::Result<()> {
            self.emit(format!("{time} begin {name}"))
        }

        fn end(&mut self, _: u32, time: u64) -> io::Result<()> {
            self.emit(format!("{time} end"))
        }

        fn finish(self: Box<Self>, _: &[Loss]) -> io::Result<()> {
            Ok(())
        }
    }

    fn calls(shortest: u64) -> (Emitted, Calls<'static>) {
        let reported = Emitted::default();
        let mut calls = Calls::new(Box::new(reported.clone()), shortest).unwrap();
        calls.begin_track(&Track::Named(String::new())).unwrap();
        (reported, calls)
    }

    #[test]
    fn short_calls_are_left_out_and_counted() {
        let (reported, mut calls) = calls(10);
        calls.begin(0, Some(100), 1).unwrap();
        calls.begin(0, Some(101), 2).unwrap();
        calls.end(0, Some(110), Instructions::default()).unwrap();
        calls.begin(0, Some(111), 3).unwrap();
        calls.begin(0, Some(111), 4).unwrap();
        calls.end(0, Some(121), Instructions::default()).unwrap();
        calls.end(0, Some(122), Instructions::default()).unwrap();
        calls.end(0, None, Instructions::default()).unwrap();
        let expected =
            ["100 begin 1", "111 begin 3", "111 begin 4", "121 end", "122 end", "122 end"].map(String::from);
        assert_eq!(*reported.0.lock().unwrap(), expected);
        assert_eq!((calls.left_out, calls.untimed), (1, 0));
    }

    #[test]
    fn a_gap_is_a_slice() {
        let (reported, mut calls) = calls(0);
        calls.begin(0, Some(5), 1).unwrap();
        calls.end(0, Some(7), Instructions::default()).unwrap();
        calls.gap(0);
        calls.begin(0, Some(9), 1).unwrap();
        calls.end(0, Some(9), Instructions::default()).unwrap();
        let expected = ["5 begin 1", "7 end", "7 begin 0", "9 end", "9 begin 1", "9 end"].map(String::from);
        assert_eq!(*reported.0.lock().unwrap(), expected);
    }

    #[test]
    fn calls_without_times_are_counted() {
        let (reported, mut calls) = calls(0);
        calls.begin(0, None, 1).unwrap();
        calls.begin(0, Some(3), 2).unwrap();
        calls.end(0, Some(4), Instructions::default()).unwrap();
        calls.end(0, Some(4), Instructions::default()).unwrap();
        assert_eq!(*reported.0.lock().unwrap(), ["3 begin 2", "4 end"].map(String::from));
        assert_eq!((calls.left_out, calls.untimed), (0, 1));
    }
}
