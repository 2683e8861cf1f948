//! The workflows of docs/check.md, whose steps run here as GitHub and GitLab run them: in a clone, for a branch that asks to be merged.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{check::PROGRAM, run::Folder};

/// Where the file of each service begins in the document, and what its variables are here.
const GITHUB: &str = "## In GitHub Actions";
const GITLAB: &str = "## In GitLab CI";
const VARIABLES: [(&str, &str); 4] = [
    ("${{ github.base_ref }}", "trunk"),
    ("${{ github.event.number }}", "7"),
    ("${{ github.token }}", "token"),
    ("$CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "trunk"),
];
const MAKEFILE: &str = "prog: prog.c\n\tcc -O1 -g -o prog prog.c\n";
const CASE: &str = "[[case]]\nname = \"push\"\ncommand = [\"./prog\"]\nlimits = { allocations = 0 }\n";
/// In place of GitHub's program: writes down what it is asked for.
const GH: &str = "#!/bin/sh\necho \"$@\" > asked\n";

/// A command of a workflow.
struct Step {
    command: String,
    /// Whether it runs after a failure too.
    always: bool,
}

/// The commands of the file that follows a heading.
fn steps(heading: &str) -> Vec<Step> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check.md");
    let document = fs::read_to_string(document).expect("a document");
    let (_, section) = document.split_once(heading).expect("a heading");
    let lines = section.lines().skip(1).skip_while(|line| line.is_empty());
    let (mut steps, mut always) = (Vec::new(), false);
    for line in lines.take_while(|line| line.starts_with("    ")).map(str::trim) {
        let words = line.strip_prefix("- ").unwrap_or(line);
        let command = match words.split_once(": ") {
            Some(("run", command)) => Some(command),
            Some(("if", "always()")) => {
                always = true;
                None
            }
            // GitLab lists commands alone.
            None if line.starts_with("- ") => Some(words),
            _ => None,
        };
        if let Some(command) = command {
            let command = VARIABLES
                .iter()
                .fold(command.to_owned(), |command, (name, value)| command.replace(name, value));
            steps.push(Step { command, always });
            always = false;
        }
    }
    assert!(steps.iter().any(|step| step.command.starts_with("hodo check")), "{heading}");
    steps
}

/// Runs a command in a folder, with `hodo` and the stand-ins of `programs`; returns whether it succeeded.
fn run(command: &mut Command, folder: &Path, programs: &Path) -> bool {
    let hodo = Path::new(env!("CARGO_BIN_EXE_hodo")).parent().expect("a folder").to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([programs.to_owned(), hodo].into_iter().chain(env::split_paths(&path)));
    let mut git = Vec::new();
    for role in ["AUTHOR", "COMMITTER"] {
        git.extend([(format!("GIT_{role}_NAME"), "a"), (format!("GIT_{role}_EMAIL"), "a@b")]);
    }
    let answer = command.current_dir(folder).env("PATH", path.expect("a path")).envs(git).output();
    answer.expect("a shell").status.success()
}

fn shell(script: &str, folder: &Path, programs: &Path) -> bool {
    run(Command::new("sh").args(["-e", "-c", script]), folder, programs)
}

/// A repository with a baseline on its branch `trunk`, a branch `same` that changes no program, and a branch `slower`.
struct Repository {
    folder: Folder,
    programs: PathBuf,
}

impl Repository {
    fn new() -> Repository {
        let folder = Folder::new();
        let (origin, programs) = (folder.path().join("origin"), folder.path().join("programs"));
        for path in [&origin, &programs] {
            fs::create_dir(path).expect("a folder");
        }
        fs::write(programs.join("gh"), GH).expect("a file");
        fs::set_permissions(programs.join("gh"), fs::Permissions::from_mode(0o755)).expect("permissions");
        let files =
            [("prog.c", PROGRAM), ("Makefile", MAKEFILE), ("hodo.toml", CASE), (".gitignore", "prog\n")];
        for (name, text) in files {
            fs::write(origin.join(name), text).expect("a file");
        }
        let made = shell(
            "make
            hodo check --quiet --save
            git init --quiet --initial-branch=trunk
            git add . && git commit --quiet -m baseline
            git checkout --quiet -b same
            echo text > README && git add . && git commit --quiet -m text
            git checkout --quiet -b slower trunk
            sed -i '1i #define GROWS_BY_ONE' prog.c && git commit --quiet -am slower",
            &origin,
            &programs,
        );
        assert!(made);
        Repository { folder, programs }
    }

    /// Runs a workflow for a branch; returns whether it passes, and the folder of the clone.
    fn merge_request(&self, branch: &str, heading: &str) -> (bool, PathBuf) {
        let clone = self.folder.path().join(format!("{branch}-{}", heading.len()));
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--branch", branch, "origin"]).arg(&clone);
        assert!(run(&mut git, &self.folder.path(), &self.programs));
        let mut passed = true;
        for Step { command, always } in steps(heading) {
            if passed || always {
                passed &= shell(&command, &clone, &self.programs);
            }
        }
        (passed, clone)
    }
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_workflow_of_github_passes_and_fails_and_comments_both_times() {
    let repository = Repository::new();
    for (branch, passes) in [("same", true), ("slower", false)] {
        let (passed, clone) = repository.merge_request(branch, GITHUB);
        assert_eq!(passed, passes, "{branch}: {}", read(&clone, "comment.md"));
        assert!(read(&clone, "asked").starts_with("pr comment 7 --body-file comment.md "));
        assert_eq!(read(&clone, "comment.md").contains("`grow`"), !passes);
    }
}

#[test]
fn the_workflow_of_gitlab_passes_and_fails_with_a_report() {
    let repository = Repository::new();
    for (branch, passes) in [("same", true), ("slower", false)] {
        let (passed, clone) = repository.merge_request(branch, GITLAB);
        assert_eq!(passed, passes, "{branch}: {}", read(&clone, "check.xml"));
        assert_eq!(read(&clone, "check.xml").contains("<failure"), !passes);
    }
}
