//! A small made-up repository that follows all rules, and tests that break each rule once.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{RATCHET, check, rust};

/// A repository of three crates that follows all rules.
fn house() -> TempDir {
    let house = TempDir::new().expect("a folder for the made-up tree");
    let root = house.path();
    put(root, "Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
    put(root, "ARCHITECTURE.md", "`crates/clock` `crates/model/` `crates/views`\n");
    add_crate(root, "clock", "");
    add_crate(root, "model", "hodo-clock = { path = \"../clock\" }");
    add_crate(root, "views", "hodo-model = { path = \"../model\" }");
    put(root, "crates/views/src/lib.rs", "mod text;\n/// All.\npub const VIEWS: &[&str] = &[text::NAME];\n");
    put(root, "crates/views/src/text/mod.rs", "pub const NAME: &str = \"text\";\n");
    put(root, "crates/bytes/src/map.rs", "// SAFETY: nobody else has it.\nlet map = unsafe { map() };\n");
    put(root, "crates/bytes/Cargo.toml", &manifest("bytes", ""));
    put(root, "crates/bytes/src/lib.rs", "");
    append(root, "ARCHITECTURE.md", "`crates/bytes`\n");
    house
}

fn manifest(name: &str, dependencies: &str) -> String {
    format!("[package]\nname = \"hodo-{name}\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n")
}

fn add_crate(root: &Path, name: &str, dependencies: &str) {
    put(root, &format!("crates/{name}/Cargo.toml"), &manifest(name, dependencies));
    put(root, &format!("crates/{name}/src/lib.rs"), "");
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder of the made-up tree");
    fs::write(path, text).expect("a file of the made-up tree");
}

fn append(root: &Path, path: &str, text: &str) {
    let before = fs::read_to_string(root.join(path)).expect("a file of the made-up tree");
    put(root, path, &(before + text));
}

/// Changes the repository and expects exactly one finding, which is `expected`.
#[track_caller]
fn broken(change: impl FnOnce(&Path), expected: &str) {
    assert_eq!(found(change), [expected]);
}

/// The findings after a change.
fn found(change: impl FnOnce(&Path)) -> Vec<String> {
    let house = house();
    change(house.path());
    check(house.path()).expect("a readable tree").iter().map(|f| f.to_string()).collect()
}

#[test]
fn the_house_is_in_order() {
    assert_eq!(check(house().path()).expect("a readable tree"), []);
}

#[test]
fn a_crate_uses_only_what_it_may() {
    let change = |root: &Path| {
        put(root, "crates/clock/Cargo.toml", &manifest("clock", "hodo-bytes = { path = \"../bytes\" }"))
    };
    broken(change, "crates/clock/Cargo.toml: hodo-clock may not use hodo-bytes");
}

#[test]
fn tests_may_use_any_crate() {
    let house = house();
    let text = manifest("clock", "[dev-dependencies]\nhodo-bytes = { path = \"../bytes\" }");
    put(house.path(), "crates/clock/Cargo.toml", &text);
    assert_eq!(check(house.path()).expect("a readable tree"), []);
}

#[test]
fn a_new_crate_is_entered_in_the_table() {
    let change = |root: &Path| {
        add_crate(root, "cellar", "");
        append(root, "ARCHITECTURE.md", "`crates/cellar`\n");
    };
    broken(change, "crates/cellar/Cargo.toml: hodo-cellar is not in the table of who may use whom");
}

#[test]
fn the_map_shows_every_crate() {
    let change = |root: &Path| put(root, "ARCHITECTURE.md", "`crates/clock` `crates/model` `crates/bytes`\n");
    broken(change, "ARCHITECTURE.md: `crates/views` is not on the map");
}

#[test]
fn the_map_shows_no_crate_that_is_not_there() {
    let change = |root: &Path| append(root, "ARCHITECTURE.md", "`crates/attic`\n");
    broken(change, "ARCHITECTURE.md: `crates/attic` is on the map but not in the tree");
}

#[test]
fn a_folder_of_an_extension_point_is_in_its_list() {
    let change = |root: &Path| put(root, "crates/views/src/html/mod.rs", "");
    broken(change, "crates/views/src/lib.rs: the folder html/ is not in the list `const VIEWS`");
}

#[test]
fn seams_stay() {
    let text = concat!("struct Door(Experiment", "<'static>);\n");
    let change = |root: &Path| put(root, "crates/model/src/door.rs", text);
    broken(change, "crates/model/src/door.rs:1: an Experiment owns its traces, and has no lifetime");
    let why = "events of ftrace and perf do not pass through CTF; their classes are in `crate::events`";
    let room = |root: &Path, name: &str| {
        add_crate(root, name, "");
        append(root, "ARCHITECTURE.md", &format!("`crates/{name}`\n"));
    };
    let change = |root: &Path| {
        room(root, "formats");
        put(root, "crates/formats/src/perf/events.rs", "\nuse crate::ctf::Trace;\n");
    };
    let found = found(change);
    assert!(found.contains(&format!("crates/formats/src/perf/events.rs:2: {why}")), "{found:?}");
    let why = "the report `queue` is named: what it needs, and its role, belong to its description";
    let ways = [
        "match name {\n    \"queue\" => 1,\n}\n",
        "// As report(\"queue\").\nreport(\"queue\")\n",
        "\nif kind == \"queue\" {\n}\n",
    ];
    for way in ways {
        let change = |root: &Path| {
            room(root, "analyses");
            put(root, "crates/analyses/src/queue.rs", "Description {\n    name: \"queue\",\n");
            put(root, "crates/views/src/queue.rs", way);
        };
        broken(change, &format!("crates/views/src/queue.rs:2: {why}"));
    }
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let change =
        |root: &Path| put(root, "crates/model/src/lib.rs", "// SAFETY: sure.\nfn f() { unsafe { g() } }\n");
    broken(change, "crates/model/src/lib.rs:2: `unsafe` has no place here");
}

#[test]
fn unsafe_says_why_it_is_sound() {
    let change =
        |root: &Path| put(root, "crates/bytes/src/map.rs", "// Fast.\nlet map = unsafe { map() };\n");
    broken(change, "crates/bytes/src/map.rs:2: `unsafe` without a `// SAFETY:` comment");
}

#[test]
fn a_folder_is_listed_by_its_whole_name() {
    // `ext` ends the listed `text`.
    let change = |root: &Path| put(root, "crates/views/src/ext/mod.rs", "pub const NAME: &str = \"ext\";\n");
    broken(change, "crates/views/src/lib.rs: the folder ext/ is not in the list `const VIEWS`");
}

#[test]
fn a_safety_comment_holds_for_one_statement() {
    let text = "// SAFETY: once.\nlet a = unsafe { f() };\nlet b = unsafe { f() };\n";
    let change = |root: &Path| put(root, "crates/bytes/src/map.rs", text);
    broken(change, "crates/bytes/src/map.rs:3: `unsafe` without a `// SAFETY:` comment");
}

#[test]
fn functions_and_files_have_a_limit() {
    let long = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(69));
    let change = |root: &Path| put(root, "crates/model/src/lib.rs", &long);
    broken(change, "crates/model/src/lib.rs:1: crates/model/src/lib.rs:long has 71 lines, at most 70");
    let change = |root: &Path| put(root, "lab/long.c", &"int x;\n".repeat(601));
    broken(change, "lab/long.c: lab/long.c has 601 lines, at most 600");
}

#[test]
fn the_ratchet_only_shrinks() {
    let file = |lines: usize, allowed: usize| {
        move |root: &Path| {
            put(root, "lab/long.c", &"int x;\n".repeat(lines));
            put(root, RATCHET, &format!("# long\nlab/long.c {allowed}\n"));
        }
    };
    broken(file(702, 701), "lab/long.c: lab/long.c has 702 lines, at most 600");
    broken(
        file(700, 701),
        &format!("lab/long.c: lab/long.c shrank to 700 lines: lower it from 701 in {RATCHET}"),
    );
    broken(file(600, 701), &format!("{RATCHET}: lab/long.c is within the limit: remove it here"));
    let house = house();
    file(701, 701)(house.path());
    assert_eq!(check(house.path()).expect("a readable tree"), []);
}

#[test]
fn nothing_is_left_unfinished() {
    let note = format!("// {}: later\n", concat!("TO", "DO"));
    let change = |root: &Path| put(root, "crates/model/src/lib.rs", &note);
    broken(change, concat!("crates/model/src/lib.rs:1: TO", "DO: do it, or make it an issue"));
    let print = format!("fn f() {{ {}(1); }}\n", concat!("dbg", "!"));
    let change = |root: &Path| put(root, "crates/model/src/lib.rs", &print);
    broken(change, "crates/model/src/lib.rs:1: a debugging print");
}

#[test]
fn names_say_something() {
    let change = |root: &Path| put(root, "crates/model/src/utils.rs", "");
    broken(change, "crates/model/src/utils.rs: `utils.rs` says nothing: name it by what it holds");
    let change = |root: &Path| put(root, "lab/common/x.c", "int x;\n");
    broken(change, "lab/common/x.c: `common` says nothing: name it by what it holds");
}

#[test]
fn lines_end_clean() {
    let change = |root: &Path| put(root, "docs/page.md", "text \n");
    broken(change, "docs/page.md:1: space at the end of the line");
    let change = |root: &Path| put(root, "docs/page.md", "text");
    broken(change, "docs/page.md: no newline at the end");
}

#[test]
fn fixtures_stay_small() {
    let change = |root: &Path| {
        put(root, "fixtures/big", "");
        let file = fs::File::options().write(true).open(root.join("fixtures/big")).expect("the fixture");
        file.set_len((30 << 20) + 1).expect("a sparse file");
    };
    broken(change, "fixtures: 31457281 bytes, at most 31457280");
}

#[test]
fn words_in_comments_and_literals_are_not_code() {
    let text = "// unsafe\n/* unsafe /* */ unsafe */ let a = \"unsafe \\\" unsafe\"; let b = r#\"unsafe \" \"#; \
                let c = b'\"'; fn f<'a>(x: &'a str) { 'unsafe_label: loop {} } unsafe";
    let masked = rust::mask(text);
    assert_eq!(masked.len(), text.len());
    assert_eq!(rust::occurrences(&masked, "unsafe").collect::<Vec<_>>(), [text.len() - "unsafe".len()]);
}

#[test]
fn functions_are_measured() {
    let text = "fn one() -> [u8; 3] { [1, 2, 3] }\nfn three(\n) {\n}\ntrait T { fn none(&self); }\ntype F = fn(u8);\n";
    let found: Vec<_> = rust::functions(text).iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("one", 1, 1), ("three", 2, 3)]);
}
