//! Where the run is spent, if no reason explains half of it.

use std::collections::{BTreeMap, HashMap};

use super::{growth, unequal};
use crate::{
    Evidence, Finding, Need, Rule,
    call_tree::{self, NameId, TREE, Tree},
    evidence::figure,
    link,
    numbers::Numbers,
    text::{self, percent, share},
};

/// The most functions that are reported.
const MOST: usize = 3;
/// The least share of the run of the second and third.
const LEAST: f64 = 0.05;

pub(crate) const RULE: Rule = Rule {
    name: "hot",
    help: "if no other finding explains half of the run: the three functions with the most instructions of their own (of a library's, with what they call), the second and third with at least 5 % of the run, and who calls them; and the function whose system calls take at least 25 % of the time, in at least 100 calls of at most 100 µs, and twice its share of the instructions",
    needs: &[TREE],
    find,
};

/// Source lines by function.
const LINES: Need = ("lines", "function");
/// A function with this share of the run in its own code, in at most so many calls, is looked at line by line.
const BY_LINE: f64 = 0.5;
const FEW_CALLS: u64 = 100;
/// The least share of the function's own instructions of a line that is named, and the most such lines.
const LEAST_LINE: f64 = 0.1;
const MOST_LINES: usize = 2;
/// The least share of the time that system calls of a function take, the least number of calls, and the least ratio to
/// its share of the instructions.
const OUTSIDE: f64 = 0.25;
const FEWEST_OUTSIDE: u64 = 100;
/// Longest average of such a call, in nanoseconds: longer ones wait for somebody, as `read` does for a pipe.
const LONGEST_OUTSIDE: u64 = 100_000;
const DISAGREES: f64 = 2.0;

/// Functions that wait because the program wants to: what passes there is no time that it needs. Locks have a rule.
const WAITS: &[&str] = &[
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_ex",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_barrier_wait",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_mutex_unlock_usercnt",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "sem_wait",
    "sem_timedwait",
    "new_sem_wait",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "wait",
    "wait3",
    "wait4",
    "waitpid",
    "waitid",
    "system",
    "sigwait",
    "sigsuspend",
    "pause",
    "accept",
    "accept4",
    "recv",
    "recvfrom",
    "recvmsg",
    "syscall",
];

/// The name and the module of a function.
type Function = (String, String);

/// A function as called by one caller.
#[derive(Default)]
struct Called {
    instructions: u64,
    calls: u64,
    time: u64,
    outside: u64,
}

/// A function with its own instructions; of a library's also those of what it calls.
#[derive(Default)]
struct Hot {
    instructions: u64,
    /// Nanoseconds, and those outside of the traced code.
    time: u64,
    outside: u64,
    callers: BTreeMap<String, Called>,
}

/// What the instructions and the times of functions are compared with.
struct Run {
    instructions: u64,
    /// Nanoseconds of all threads, without what they wait for.
    time: u64,
    /// Whether system calls take so much of the time that instructions do not say where it passed.
    is_outside: bool,
}

/// Returns the functions of a call tree by name and module. What a library runs counts for the function by which the program
/// entered it.
fn functions(tree: &Tree<'_>) -> BTreeMap<Function, Hot> {
    // By function, module and caller.
    let mut all: HashMap<(NameId, NameId, Option<NameId>), Called> = HashMap::new();
    tree.visit(|node| {
        let (entry, caller) = node.entry();
        let key = (entry.function, entry.module, caller.map(|caller| caller.function));
        let called = all.entry(key).or_default();
        called.instructions = called.instructions.saturating_add(node.row.self_instructions);
        called.time = called.time.saturating_add(node.row.self_time_ns);
        called.outside = called.outside.saturating_add(node.row.outside_time_ns);
        if std::ptr::eq(entry, node.row) {
            called.calls = called.calls.saturating_add(entry.entries);
        }
    });
    let mut functions: BTreeMap<Function, Hot> = BTreeMap::new();
    for ((name, module, caller), called) in all {
        let [name, module] = [name, module].map(|id| tree.text(id).to_owned());
        let function = functions.entry((name, module)).or_default();
        function.instructions = function.instructions.saturating_add(called.instructions);
        function.time = function.time.saturating_add(called.time.saturating_add(called.outside));
        function.outside = function.outside.saturating_add(called.outside);
        let caller = caller.map_or("", |caller| tree.text(caller));
        let of_caller = function.callers.entry(caller.to_owned()).or_default();
        of_caller.instructions = of_caller.instructions.saturating_add(called.instructions);
        of_caller.calls = of_caller.calls.saturating_add(called.calls);
        of_caller.time = of_caller.time.saturating_add(called.time);
        of_caller.outside = of_caller.outside.saturating_add(called.outside);
    }
    functions
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for tree in evidence.trees() {
        let mut hot: Vec<_> = functions(tree).into_iter().collect();
        hot.sort_by_key(|(_, hot)| std::cmp::Reverse(hot.instructions));
        let whole_time = figure(tree.table, "time_ns").saturating_add(figure(tree.table, "outside_time_ns"));
        let waiting = hot.iter().filter(|((name, _), _)| waits(name)).map(|(_, hot)| hot.outside);
        let mut run = Run {
            instructions: figure(tree.table, "instructions"),
            time: whole_time.saturating_sub(waiting.fold(0, u64::saturating_add)),
            is_outside: false,
        };
        if let Some((function, finding)) = outside(&run, &hot) {
            run.is_outside = true;
            findings.push(finding);
            hot.retain(|(own, _)| *own != function);
        }
        hot.retain(|(_, hot)| hot.instructions > 0);
        for (index, ((name, module), hot)) in hot.iter().take(MOST).enumerate() {
            let weight = share(hot.instructions, run.instructions);
            if index == 0 || weight >= LEAST {
                findings.push(finding(evidence, [name, module], hot, &run));
            }
        }
    }
    if let (Some(first), Some(roles)) = (findings.first_mut(), unequal::named_roles(evidence)) {
        first.sentence += &format!(" Threads have roles of their own: {roles} of their instructions.");
    }
    findings
}

/// Returns whether a function waits by design.
fn waits(function: &str) -> bool {
    let name = call_tree::plain_name(function);
    WAITS.contains(&name)
}

/// Returns the function whose system calls take most of the time, if instructions do not show that.
fn outside(run: &Run, hot: &[(Function, Hot)]) -> Option<(Function, Finding)> {
    let working = hot.iter().filter(|((name, _), _)| !waits(name));
    let (function, most) = working.max_by_key(|(_, hot)| hot.outside)?;
    let (caller, called) = most.callers.iter().max_by_key(|(_, called)| called.outside)?;
    let weight = share(most.outside, run.time);
    let of_instructions = share(most.instructions, run.instructions);
    let is_often = called.calls >= FEWEST_OUTSIDE && called.outside / called.calls <= LONGEST_OUTSIDE;
    if weight < OUTSIDE || !is_often || weight < of_instructions * DISAGREES {
        return None;
    }
    let mut numbers = Numbers::default();
    let by = match caller.is_empty() {
        true => "called".to_owned(),
        false => format!("called by {}", numbers.function("caller", caller)),
    };
    let sentence = format!(
        "{} of the time passes in system calls of {}, {by} {}, {} each, with {} of the instructions. Fewer calls would make it \
         less.",
        numbers.percent("share", weight),
        numbers.function("function", &function.0),
        numbers.times("calls", called.calls),
        numbers.duration("outside_ns_each", called.outside / called.calls),
        numbers.percent("share_of_instructions", of_instructions),
    );
    let (command, link) = ("report tree".to_owned(), link::flame());
    let finding = Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() };
    Some((function.clone(), finding))
}

/// Returns the lines of what is hot, if it is a function whose calls do not say why.
pub(crate) fn further(evidence: &Evidence<'_>) -> Vec<Need> {
    let is_large = |tree: &Tree<'_>| {
        let least = figure(tree.table, "instructions") as f64 * BY_LINE;
        let mut own: HashMap<[NameId; 2], (u64, u64)> = HashMap::new();
        tree.visit(|node| {
            let of = own.entry([node.row.function, node.row.module]).or_default();
            of.0 = of.0.saturating_add(node.row.self_instructions);
            of.1 = of.1.saturating_add(node.row.entries);
        });
        let is_one = |([_, module], (instructions, entries)): (&[NameId; 2], &(u64, u64))| {
            *instructions as f64 >= least && *entries <= FEW_CALLS && tree.is_own(*module)
        };
        least > 0.0 && own.iter().any(is_one)
    };
    match evidence.trees().iter().any(is_large) {
        true => vec![LINES],
        false => Vec::new(),
    }
}

/// Names the lines with most of a function's own instructions: `75 % of that is at d1.c:5`.
fn lines(evidence: &Evidence<'_>, [name, module]: [&String; 2], instructions: u64) -> Option<String> {
    let mut rows = evidence.rows(LINES);
    rows.retain(|row| {
        let of = share(row.integer("instructions"), instructions);
        call_tree::names(row) == [name, module] && !row.text("line").is_empty() && of >= LEAST_LINE
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.integer("instructions")));
    let at = |row: &crate::Row<'_>| {
        let (line, of) = (row.text("line"), share(row.integer("instructions"), instructions));
        format!("{} at {}", percent(of), line.rsplit_once('/').map_or(line, |(_, name)| name))
    };
    let named: Vec<String> = rows.iter().take(MOST_LINES).map(at).collect();
    (!named.is_empty()).then(|| format!("Of that, {}", named.join(", ")))
}

fn finding(evidence: &Evidence<'_>, [name, module]: [&String; 2], hot: &Hot, run: &Run) -> Finding {
    let most = hot.callers.iter().max_by_key(|(_, called)| called.instructions);
    let mut numbers = Numbers::default();
    let of_instructions = share(hot.instructions, run.instructions);
    let of_time = share(hot.time, run.time);
    let percent_of = numbers.percent("share", of_instructions);
    // Where system calls take the time, a function that looks hot may be cheap.
    let time = match run.is_outside {
        true => format!(" ({} of the time)", numbers.percent("share_of_time", of_time)),
        false => String::new(),
    };
    let weight = if run.is_outside { of_instructions.min(of_time) } else { of_instructions };
    let whole = if time.is_empty() { "run is" } else { "instructions are" };
    let part = format!("{percent_of} of the {whole} in {}{time}", numbers.function("function", name));
    let sentence = match most {
        Some((caller, called)) if !caller.is_empty() && called.calls > 0 => {
            let each = called.instructions / called.calls;
            let of_caller = share(called.instructions, hot.instructions);
            let mostly =
                if of_caller < 0.9 { format!(", {} of it", percent(of_caller)) } else { String::new() };
            let less = match called.calls > each {
                true => "Fewer calls would make it less",
                false => "Less work in each call would make it less",
            };
            format!(
                "{part}, called by {} {}{mostly}, {} instructions each. {less}.",
                numbers.function("caller", caller),
                numbers.times("calls", called.calls),
                numbers.count("instructions_each", each)
            )
        }
        _ => format!(
            "{part} itself, {} instructions. Less work there would make it less.",
            numbers.count("instructions", hot.instructions)
        ),
    };
    // A template of the language's library may call another one.
    let program_caller =
        call_tree::program_caller(evidence, name).filter(|own| most.is_some_and(|(caller, _)| caller != own));
    let sentence =
        text::with(sentence, program_caller.map(|own| format!("It runs for {}", text::name(&own))));
    let sentence = text::with(sentence, lines(evidence, [name, module], hot.instructions));
    // What its caller's cost depends on often is the reason.
    let caller = most.map(|(caller, _)| caller.as_str()).filter(|caller| !caller.is_empty());
    let depends = [Some(name.as_str()), caller].into_iter().flatten().find_map(|name| {
        let dependence = growth::dependence(evidence, name)?;
        Some(format!("The cost of {}: {dependence}", text::name(name)))
    });
    let sentence = text::with(sentence, depends);
    let (command, link) = ("report tree".to_owned(), link::flame());
    Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() }
}
