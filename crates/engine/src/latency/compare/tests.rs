use super::*;

fn node(parent: Option<usize>, depth: usize, function: &str, instructions: u64, own: u64) -> CallNode {
    let [function, module] = [function, "program"].map(Arc::from);
    CallNode {
        parent,
        depth,
        function,
        module,
        calls: 1,
        recursion: 1,
        instructions,
        self_instructions: own,
        time: Some(instructions),
        waiting: None,
    }
}

#[test]
fn extra_instructions_of_some_executions_are_exact() {
    let typical = CallTree { nodes: vec![node(None, 0, "serve", 100, 60), node(Some(0), 1, "hash", 40, 40)] };
    let grows = CallTree {
        nodes: vec![
            node(None, 0, "serve", 605, 65),
            node(Some(0), 1, "hash", 40, 40),
            node(Some(0), 1, "grow", 500, 500),
        ],
    };
    let hashes = CallTree { nodes: vec![node(None, 0, "serve", 107, 60), node(Some(0), 1, "hash", 47, 47)] };
    let compared = compare(&typical, &[grows.clone(), hashes, grows]);
    let reported = |path: &Difference| (path.function.clone(), path.executions, path.extra, path.extra_self);
    let reported: Vec<_> = compared.paths.iter().map(reported).collect();
    let expected = [
        ("serve".to_owned(), 3, (7, 505), (5, 5)),
        ("grow".to_owned(), 2, (500, 500), (500, 500)),
        ("hash".to_owned(), 1, (7, 7), (7, 7)),
    ];
    assert_eq!(reported, expected);
    let sums = |kind| compared.kinds[&kind];
    assert_eq!(sums(Kind::Own), ExtraSums { instructions: 10, time: 10 });
    assert_eq!(sums(Kind::Callee), ExtraSums { instructions: 1007, time: 1007 });
    let once = |typical| Calls { typical, slow: (1, 1), recursion: 1 };
    let cause = |path: &[&str], executions, extra, there, total| Cause {
        path: path.iter().map(|&name| name.to_owned()).collect(),
        executions,
        extra: (extra, extra),
        extra_there: (there, there),
        extra_self: (there, there),
        total,
        calls: path.iter().map(|&name| once(u64::from(name != "grow"))).collect(),
    };
    let expected = [cause(&["serve", "grow"], 2, 505, 500, 1010), cause(&["serve", "hash"], 1, 7, 7, 7)];
    assert_eq!(compared.causes, expected);
}

#[test]
fn a_function_that_runs_more_often_is_the_cause_with_its_callees() {
    let sends = |calls: u64| {
        let mut tree = CallTree {
            nodes: vec![
                node(None, 0, "serve", 20 + 50 * calls, 20),
                node(Some(0), 1, "send", 50 * calls, 30 * calls),
                node(Some(1), 2, "copy", 20 * calls, 20 * calls),
            ],
        };
        tree.nodes[1..].iter_mut().for_each(|node| node.calls = calls);
        tree
    };
    let compared = compare(&sends(1), &[sends(41)]);
    let [cause] = &compared.causes[..] else { panic!("one cause") };
    assert_eq!(
        (cause.path_text().as_str(), cause.extra, cause.extra_there),
        ("serve → send", (2000, 2000), (2000, 2000))
    );
    let often = Calls { typical: 1, slow: (41, 41), recursion: 1 };
    assert_eq!(cause.repeated(), Some(("send", often)));
}

#[test]
fn extra_instructions_that_divide_are_all_named() {
    let tree = |left: u64, right: u64| CallTree {
        nodes: vec![
            node(None, 0, "serve", 10 + left + right, 10),
            node(Some(0), 1, "left", left, left),
            node(Some(0), 1, "right", right, right),
        ],
    };
    let compared = compare(&tree(10, 10), &[tree(410, 610)]);
    let named: Vec<_> =
        compared.causes.iter().map(|cause| (cause.path_text(), cause.extra, cause.total)).collect();
    let expected = [("serve → right", 600), ("serve → left", 400)];
    assert_eq!(named, expected.map(|(path, total)| (path.to_owned(), (1000, 1000), total)));
}
