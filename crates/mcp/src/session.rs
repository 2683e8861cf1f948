//! A session with one client: requests in the order in which they come, one at a time.

use std::{
    collections::VecDeque,
    io::{self, BufRead, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use serde_json::{Map, Value, json};

use crate::{
    Answer, Tool, Tools,
    message::{self, Line, Request, code, error, result},
    pages::Pages,
};

/// Versions of the protocol that are spoken, newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// The tool that tells the next part of an answer.
const CONTINUE: &str = "continue";

/// Bounds of answers, and what the client is told at the begin.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes of an answer; longer ones come in parts.
    pub answer_bytes: usize,
    /// How the tools are meant to be used.
    pub instructions: String,
}

/// Cancelled calls that are remembered until their turn comes.
const MOST_CANCELLED: usize = 64;

/// The calls that a client may cancel.
#[derive(Default)]
struct Calls(Mutex<State>);

#[derive(Default)]
struct State {
    /// The call that runs.
    running: Option<(Value, Arc<AtomicBool>)>,
    /// Calls that were cancelled before their turn.
    cancelled: VecDeque<Value>,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the call if this is the notification that cancels it.
    fn cancel(&self, request: &Request) {
        if request.method != "notifications/cancelled" {
            return;
        }
        let id = &request.params["requestId"];
        let mut state = self.state();
        match &state.running {
            Some((running, stop)) if running == id => stop.store(true, Relaxed),
            _ => {
                if state.cancelled.len() == MOST_CANCELLED {
                    state.cancelled.pop_front();
                }
                state.cancelled.push_back(id.clone());
            }
        }
    }

    /// Stops the call that runs: nobody reads its answer.
    fn stop(&self) {
        if let Some((_, stop)) = &self.state().running {
            stop.store(true, Relaxed);
        }
    }

    /// Returns what is set once the call shall end; it is already if the call was cancelled before.
    fn begin(&self, id: &Value) -> Arc<AtomicBool> {
        let mut state = self.state();
        let stop = Arc::new(AtomicBool::new(state.cancelled.contains(id)));
        state.cancelled.retain(|cancelled| cancelled != id);
        state.running = Some((id.clone(), Arc::clone(&stop)));
        stop
    }

    fn end(&self) {
        self.state().running = None;
    }
}

/// Serves a client until the input ends.
///
/// # Errors
/// The input or output fails, or the input is not the protocol.
pub fn serve(
    mut input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
    tools: &dyn Tools,
    limits: &Limits,
) -> io::Result<()> {
    let calls = Arc::new(Calls::default());
    let (sender, lines) = mpsc::channel();
    let reader = Arc::clone(&calls);
    // It may still wait for a line when the session ends, so nobody waits for it.
    thread::spawn(move || {
        loop {
            let line = message::read(&mut input);
            if let Ok(Some(Line::Request(request))) = &line {
                reader.cancel(request);
            }
            let goes_on = matches!(line, Ok(Some(_)));
            if sender.send(line).is_err() || !goes_on {
                reader.stop();
                return;
            }
        }
    });
    let mut session = Session { tools, limits, pages: Pages::default(), calls };
    for line in lines {
        let answer = match line? {
            None => break,
            Some(Line::Wrong(answer)) => Some(answer),
            Some(Line::Request(request)) => session.answer(&request),
        };
        if let Some(answer) = answer {
            message::write(output, &answer)?;
        }
    }
    Ok(())
}

struct Session<'a> {
    tools: &'a dyn Tools,
    limits: &'a Limits,
    pages: Pages,
    calls: Arc<Calls>,
}

impl Session<'_> {
    /// Returns the response; `None` for a notification, and for a call that was cancelled.
    fn answer(&mut self, request: &Request) -> Option<Value> {
        let id = request.id.as_ref()?;
        Some(match request.method.as_str() {
            "initialize" => result(id, self.introduction(&request.params)),
            "ping" => result(id, json!({})),
            "tools/list" => result(id, json!({ "tools": self.list() })),
            "tools/call" => return self.call(id, &request.params),
            other => error(id, code::METHOD, &format!("no method is named {other}")),
        })
    }

    fn introduction(&self, params: &Value) -> Value {
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let version = VERSIONS.iter().find(|version| **version == asked).unwrap_or(&VERSIONS[0]);
        json!({
            "protocolVersion": version,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "hodo", "version": env!("CARGO_PKG_VERSION") },
            "instructions": self.limits.instructions,
        })
    }

    fn list(&self) -> Vec<Value> {
        let further = Tool {
            name: CONTINUE,
            description: "The next part of an answer that was longer than one part.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": { "answer": { "type": "integer", "description": "Number of the answer" } },
                "required": ["answer"],
                "additionalProperties": false,
            }),
            only_reads: true,
        };
        let tools = self.tools.list().into_iter().chain([further]);
        let describe = |tool: Tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.schema,
                "annotations": { "readOnlyHint": tool.only_reads, "openWorldHint": false },
            })
        };
        tools.map(describe).collect()
    }

    fn call(&mut self, id: &Value, params: &Value) -> Option<Value> {
        let none = Map::new();
        let arguments = match &params["arguments"] {
            Value::Null => &none,
            Value::Object(arguments) => arguments,
            _ => return Some(error(id, code::PARAMETERS, "arguments is no object")),
        };
        let Some(name) = params["name"].as_str() else {
            return Some(error(id, code::PARAMETERS, "the call has no name of a tool"));
        };
        let most = self.limits.answer_bytes;
        if name == CONTINUE {
            let part = arguments.get("answer").and_then(Value::as_u64);
            let part = part.and_then(|number| self.pages.next(number, most));
            let told = part.unwrap_or_else(|| "this answer has no further part, or is not kept".to_owned());
            let failed = false;
            return Some(result(id, content(&told, failed)));
        }
        let stop = self.calls.begin(id);
        let answer = self.tools.call(name, arguments, &stop);
        self.calls.end();
        let Some(answer) = answer else {
            return Some(error(id, code::PARAMETERS, &format!("no tool is named {name}")));
        };
        if stop.load(Relaxed) {
            return None;
        }
        let Answer { failed, .. } = answer;
        Some(result(id, content(&self.pages.first(answer, most), failed)))
    }
}

fn content(text: &str, failed: bool) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": failed })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufReader, Cursor},
        time::Duration,
    };

    use super::*;

    /// `echo` says its argument `text`; `wait` waits until it is stopped.
    struct Echo;

    impl Tools for Echo {
        fn list(&self) -> Vec<Tool> {
            vec![Tool { name: "echo", description: String::new(), schema: json!({}), only_reads: true }]
        }

        fn call(&self, name: &str, arguments: &Map<String, Value>, stop: &AtomicBool) -> Option<Answer> {
            let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
            match name {
                "echo" => Some(Answer { text, ..Answer::default() }),
                "wait" => {
                    while !stop.load(Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    Some(Answer::default())
                }
                _ => None,
            }
        }
    }

    fn answers(lines: &[Value]) -> Vec<Value> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        said(text.as_bytes())
    }

    fn said(text: &[u8]) -> Vec<Value> {
        let limits = Limits { answer_bytes: 100, instructions: String::new() };
        let mut output = Vec::new();
        serve(BufReader::new(Cursor::new(text.to_vec())), &mut output, &Echo, &limits).expect("a session");
        let lines = output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }

    fn call(id: u32, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    }

    #[test]
    fn a_client_introduces_itself_and_calls() {
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": { "protocolVersion": "2025-03-26" } });
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let list = json!({ "jsonrpc": "2.0", "id": "two", "method": "tools/list" });
        let all = answers(&[hello, ready, list, call(3, "echo", json!({ "text": "hello" }))]);
        assert_eq!(all[0]["result"]["protocolVersion"], "2025-03-26");
        assert_eq!(all[1]["id"], "two");
        assert_eq!(all[1]["result"]["tools"][1]["name"], "continue");
        assert_eq!(all[2]["result"]["content"][0]["text"], "hello");
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn long_answers_are_continued() {
        let text = "a line\n".repeat(40);
        let all = answers(&[
            call(1, "echo", json!({ "text": text })),
            call(2, "continue", json!({ "answer": 1 })),
            call(3, "continue", json!({ "answer": 9 })),
        ]);
        for answer in &all[..2] {
            let part = answer["result"]["content"][0]["text"].as_str().expect("text");
            assert!(part.len() <= 100 && part.contains("Next: continue {\"answer\":1}"), "{part}");
        }
        assert!(all[2]["result"]["content"][0]["text"].as_str().expect("text").contains("no further part"));
    }

    #[test]
    fn what_is_wrong_is_answered_with_an_error() {
        let all = said(b"{\n[]\n{\"id\":5,\"method\":\"no\"}\n");
        let codes: Vec<i64> = all.iter().filter_map(|answer| answer["error"]["code"].as_i64()).collect();
        assert_eq!(codes, [code::PARSE, code::REQUEST, code::METHOD]);
        let all = answers(&[call(1, "nothing", json!({})), call(2, "echo", json!([1]))]);
        assert!(all.iter().all(|answer| answer["error"]["code"] == code::PARAMETERS), "{all:?}");
    }

    #[test]
    fn a_cancelled_call_has_no_answer() {
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
        let (mut writer, reader) = pipe();
        let text = format!("{}\n", call(7, "wait", json!({})));
        thread::spawn(move || {
            writer.write_all(text.as_bytes()).expect("a request");
            thread::sleep(Duration::from_millis(50));
            writer.write_all(format!("{cancel}\n").as_bytes()).expect("a notification");
            writer.write_all(format!("{}\n", call(8, "echo", json!({ "text": "on" }))).as_bytes())
        });
        let limits = Limits { answer_bytes: 100, instructions: String::new() };
        let mut output = Vec::new();
        serve(BufReader::new(reader), &mut output, &Echo, &limits).expect("a session");
        let answer: Value = serde_json::from_slice(&output).expect("one answer");
        assert_eq!(answer["id"], 8);
    }

    fn pipe() -> (io::PipeWriter, io::PipeReader) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (writer, reader)
    }
}
