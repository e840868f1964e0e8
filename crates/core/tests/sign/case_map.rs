//! The map from cases to tests is complete and names only tests that exist.
#![expect(clippy::disallowed_methods, reason = "the map and the tests are files")]

use std::path::Path;

/// Every source file below a directory.
fn sources(dir: &Path, all: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_case_of_v_p_t_and_x_is_in_the_map_and_every_test_of_the_map_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = std::fs::read_to_string(root.join("../../docs/security-cases.md")).unwrap();
    for (section, last) in [('V', 31), ('P', 24), ('T', 27), ('X', 17)] {
        for number in 1..=last {
            let case = format!("{section}{number:02}");
            let listed = map.lines().any(|line| {
                let first = line.strip_prefix("| ").and_then(|line| line.split(" |").next());
                first.is_some_and(|cases| cases.split(", ").any(|listed| listed == case))
            });
            assert!(listed, "{case} is not in the map");
        }
    }
    let code = all_code(root);
    let names = map.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap());
    let tests = names.filter(|name| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| "vptx".contains(first))
            && letters.take(2).all(|digit| digit.is_ascii_digit())
    });
    let mut found = 0;
    for name in tests.map(|name| name.trim_end_matches('…')) {
        assert!(code.contains(&format!("fn {name}")), "no test is called {name}");
        found += 1;
    }
    assert!(found > 75, "{found}");
}

#[test]
fn every_line_of_daily_use_is_shown_by_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = std::fs::read_to_string(root.join("../../docs/usability-cases.md")).unwrap();
    for number in 1..=22 {
        assert!(map.contains(&format!("\n| {number} | ")), "nothing shows line {number}");
    }
    let code = all_code(root);
    let is_test = |name: &&str| {
        let plain =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        name.matches('_').count() > 3 && name.chars().all(plain)
    };
    let names: Vec<&str> = map.split('`').skip(1).step_by(2).filter(is_test).collect();
    for name in &names {
        assert!(code.contains(&format!("fn {name}(")), "no test is called {name}");
    }
    assert!(names.len() > 100, "{}", names.len());
}

/// Everything that is written in Rust.
fn all_code(root: &Path) -> String {
    let mut code = String::new();
    for member in ["core", "agent", "cli", "harness", "sim"] {
        for part in ["src", "tests"] {
            sources(&root.join("..").join(member).join(part), &mut code);
        }
    }
    code
}
