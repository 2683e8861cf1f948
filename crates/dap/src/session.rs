//! The state of a session, and which function answers which request.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
};

use hodo_engine::Trace;
use hodo_stepping::{Direction, Execution, Instant, Position, SceneFrame, Stepper};
use serde_json::{Value, json};

use crate::{
    breakpoints::Breakpoints,
    message::{self, Request},
};

/// The answer to a request, or why there is none.
pub(crate) type Answer = Result<Value, String>;

/// A session with a client.
pub(crate) struct Session<'x, 'f> {
    pub(crate) trace: &'x Trace<'f>,
    execution: &'x mut Execution,
    /// Set to stop a search.
    pub(crate) stop: &'x AtomicBool,
    output: &'x mut dyn Write,
    /// The number of the last message.
    seq: i64,
    /// The position that moved last.
    pub(crate) here: Option<Position>,
    pub(crate) breakpoints: Breakpoints,
    /// Whether a continued execution stops where flow is missing.
    pub(crate) stops_at_gaps: bool,
    /// The frames that the client knows, by number.
    pub(crate) frames: Vec<SceneFrame>,
    /// The source files that it knows, as the debugging information names them.
    pub(crate) sources: BTreeSet<String>,
    /// Prefixes of source paths: as in the debugging information, and as the client has them.
    pub(crate) source_map: Vec<(String, String)>,
    /// The targets of the last `gotoTargets`.
    pub(crate) targets: BTreeMap<i64, Vec<hodo_stepping::Place>>,
    /// Events to send after the response.
    events: Vec<(&'static str, Value)>,
    has_ended: bool,
}

impl<'x, 'f> Session<'x, 'f> {
    pub(crate) fn new(
        trace: &'x Trace<'f>,
        execution: &'x mut Execution,
        stop: &'x AtomicBool,
        output: &'x mut dyn Write,
    ) -> Session<'x, 'f> {
        Session {
            trace,
            execution,
            stop,
            output,
            seq: 0,
            here: None,
            breakpoints: Breakpoints::default(),
            stops_at_gaps: false,
            frames: Vec::new(),
            sources: BTreeSet::new(),
            source_map: Vec::new(),
            targets: BTreeMap::new(),
            events: Vec::new(),
            has_ended: false,
        }
    }

    /// Answers requests until the client disconnects.
    pub(crate) fn run(mut self, requests: &Receiver<Request>) -> io::Result<()> {
        while let Ok(request) = requests.recv() {
            let Request { seq, command, arguments } = &request;
            let answer = self.answer(command, arguments);
            let mut response = json!({
                "type": "response", "request_seq": seq, "command": command, "success": answer.is_ok(),
            });
            match answer {
                Ok(body) => response["body"] = body,
                Err(why) => response["message"] = why.into(),
            }
            self.send(response)?;
            for (event, body) in std::mem::take(&mut self.events) {
                self.send(json!({ "type": "event", "event": event, "body": body }))?;
            }
            if self.has_ended {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, mut message: Value) -> io::Result<()> {
        self.seq += 1;
        message["seq"] = self.seq.into();
        message::write(self.output, &message)
    }

    /// Sends an event after the response.
    pub(crate) fn event(&mut self, name: &'static str, body: Value) {
        self.events.push((name, body));
    }

    fn answer(&mut self, command: &str, arguments: &Value) -> Answer {
        match command {
            "initialize" => self.initialize(),
            "launch" | "attach" => self.launch(arguments),
            "configurationDone" => self.configured(),
            "setBreakpoints" => self.set_breakpoints(arguments),
            "setFunctionBreakpoints" => self.set_function_breakpoints(arguments),
            "setInstructionBreakpoints" => self.set_instruction_breakpoints(arguments),
            "setExceptionBreakpoints" => self.set_exception_breakpoints(arguments),
            "threads" => self.threads(),
            "stackTrace" => self.stack_trace(arguments),
            "scopes" => self.scopes(arguments),
            "variables" => self.variables(arguments),
            "source" => self.source(arguments),
            "disassemble" => self.disassemble(arguments),
            "next" | "stepIn" | "stepOut" | "stepBack" => self.steps(command, arguments),
            "continue" => self.run_to(arguments, Direction::Forward),
            "reverseContinue" => self.run_to(arguments, Direction::Backward),
            "gotoTargets" => self.goto_targets(arguments),
            "goto" => self.goto(arguments),
            "evaluate" => self.evaluate(arguments),
            "exceptionInfo" => self.exception_info(),
            // A search ends with its own event.
            "pause" => Ok(Value::Null),
            "disconnect" | "terminate" => {
                self.has_ended = true;
                self.event("terminated", json!({}));
                Ok(Value::Null)
            }
            _ => Err(format!("{command} is not supported: a recording has no memory and no registers")),
        }
    }

    fn initialize(&mut self) -> Answer {
        self.event("initialized", json!({}));
        Ok(json!({
            "supportsConfigurationDoneRequest": true,
            "supportsFunctionBreakpoints": true,
            "supportsInstructionBreakpoints": true,
            "supportsStepBack": true,
            "supportsSteppingGranularity": true,
            "supportsDisassembleRequest": true,
            "supportsGotoTargetsRequest": true,
            "supportsDelayedStackTraceLoading": true,
            "supportsSingleThreadExecutionRequests": true,
            "supportsExceptionInfoRequest": true,
            "supportsTerminateRequest": true,
            "exceptionBreakpointFilters": [{
                "filter": "gap",
                "label": "Missing flow",
                "description": "Stop where the recording lost what was executed",
                "default": true,
            }],
        }))
    }

    /// Begins where the client asks: `at` is an instant, `tid` a thread; else with the first instruction.
    fn launch(&mut self, arguments: &Value) -> Answer {
        let prefixes = arguments["sourceMap"].as_object();
        let prefix = |(from, to): (&String, &Value)| Some((from.clone(), to.as_str()?.to_owned()));
        self.source_map = prefixes.into_iter().flatten().filter_map(prefix).collect();
        let threads: Vec<u32> = self.execution.threads().collect();
        let tid = arguments["tid"].as_u64();
        let is_it =
            |&&thread: &&u32| tid.is_none_or(|tid| u64::from(self.trace.threads[thread as usize].tid) == tid);
        let wanted: Vec<u32> = threads.iter().filter(is_it).copied().collect();
        let Some(&first) = wanted.first() else {
            return Err(match tid {
                Some(tid) => format!("tid {tid}: no such thread executes recorded code"),
                None => "no instruction was recorded".to_owned(),
            });
        };
        self.here = match arguments["at"].as_str() {
            None => {
                let stepper = self.stepper();
                let begins: Vec<Position> =
                    wanted.iter().filter_map(|&thread| stepper.first(thread)).collect();
                let timed = begins.into_iter().map(|begin| (self.stepper().time(begin), begin));
                timed.min_by_key(|&(time, _)| (time.is_none(), time)).map(|(_, begin)| begin)
            }
            Some(text) => {
                let instant = Instant::parse(text, self.trace).map_err(|why| format!("at {text}: {why}"))?;
                let mut stepper = self.stepper();
                let found =
                    wanted.iter().find_map(|&thread| stepper.at_instant(thread, instant).ok().flatten());
                found.or_else(|| stepper.first(first))
            }
        };
        Ok(Value::Null)
    }

    fn configured(&mut self) -> Answer {
        let here = self.here.ok_or("launch comes before configurationDone")?;
        self.stopped(here, "entry", &[]);
        Ok(Value::Null)
    }

    /// Says that the execution is at a position.
    pub(crate) fn stopped(&mut self, at: Position, reason: &str, hit: &[i64]) {
        self.here = Some(at);
        self.frames.clear();
        let mut body =
            json!({ "reason": reason, "threadId": thread_id(at.thread), "allThreadsStopped": true });
        if !hit.is_empty() {
            body["hitBreakpointIds"] = json!(hit);
        }
        let gap = self.stepper().gap_reasons(at);
        if !gap.is_empty() {
            body["reason"] = "exception".into();
            body["description"] = "flow is missing here".into();
            body["text"] = gap.join("; ").into();
        }
        self.event("stopped", body);
    }

    pub(crate) fn stepper(&mut self) -> Stepper<'_, 'f> {
        self.execution.stepper(self.trace, &|| true)
    }

    /// Does work that the client may stop.
    pub(crate) fn search<R>(&mut self, work: impl FnOnce(&mut Stepper<'_, 'f>) -> R) -> R {
        self.stop.store(false, Ordering::Relaxed);
        let stop = self.stop;
        let keep_going = || !stop.load(Ordering::Relaxed);
        work(&mut self.execution.stepper(self.trace, &keep_going))
    }

    pub(crate) fn all_threads(&self) -> Vec<u32> {
        self.execution.threads().collect()
    }

    /// The position of a thread at the instant of the one that moved last; `None` if it executes nothing then.
    pub(crate) fn position_of(&mut self, thread: u32) -> Option<Position> {
        let here = self.here?;
        if here.thread == thread {
            return Some(here);
        }
        let mut stepper = self.stepper();
        let time = stepper.time(here)?;
        stepper.at_instant(thread, Instant::Time(time)).ok().flatten()
    }
}

/// The number of a thread in the protocol, which is not 0.
pub(crate) fn thread_id(thread: u32) -> u64 {
    u64::from(thread) + 1
}

/// The thread that a request is about.
pub(crate) fn thread_of(arguments: &Value) -> Result<u32, String> {
    let number = arguments["threadId"].as_u64().and_then(|id| id.checked_sub(1));
    let thread = number.and_then(|number| u32::try_from(number).ok());
    thread.ok_or_else(|| format!("threadId {}: there is no such thread", arguments["threadId"]))
}
