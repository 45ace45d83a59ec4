//! The cost of a decision in CPU instructions, which are the same on a busy machine, so that a test can limit it.

#[expect(dead_code, reason = "what the other tests need is there too")]
mod support;

use std::process::Command;

use serde_json::json;
use support::{AFTERNOON, World, event};

/// The number of people in the run under Valgrind.
const PEOPLE: &str = "CAMPANILE_TEST_PEOPLE";
/// A third above the cost without optimisation, for four channels and a preference, including the check of the person's
/// row.
const MOST_EACH: u64 = 290_000;

#[test]
fn one_more_person_costs_a_bounded_number_of_instructions() {
    if let Ok(people) = std::env::var(PEOPLE) {
        return decide_for(people.parse().expect("a number"));
    }
    let (few, many) = (10, 110);
    let each = (instructions(many) - instructions(few)) / (many - few);
    println!("{each} instructions for each person");
    assert!(
        (1..=MOST_EACH).contains(&each),
        "{each} instructions for each person, and {MOST_EACH} are allowed"
    );
    // The cost is flat: the last of many recipients cost as much as the first.
    let later = (instructions(4 * many) - instructions(many)) / (3 * many);
    assert!(later < each * 3 / 2, "{later} instructions for each of many, {each} for each of few");
}

fn decide_for(people: u64) {
    let person = |world: World, id: u64| {
        world
            .person(json!({
                "user_type": "RESTAURANT_USER", "user_id": format!("{id:05}"), "entity_type": "RESTAURANT",
                "entity_id": "5",
                "role": "WAITER", "email": format!("p{id}@example.com"), "phone": "+390551234567", "push_tokens": ["t"],
                "time_zone": "Europe/Rome",
            }))
            .preference(json!({"user_type": "RESTAURANT_USER", "user_id": format!("{id:05}"), "channel": "SMS",
                "enabled": false}))
    };
    let world = (0..people).fold(World::new(), person);
    let told = world.fan_out(&event("ORDER_CREATED", "RESTAURANT", "5", &json!({})), AFTERNOON);
    assert_eq!(told.rows.len() as u64, 3 * people);
}

/// The instructions of this test in a process of its own with `people` people.
fn instructions(people: u64) -> u64 {
    let valgrind = std::env::var("CAMPANILE_TEST_VALGRIND").unwrap_or_else(|_| "valgrind".to_owned());
    let mut command = Command::new(valgrind);
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().expect("a test has a program"));
    command.args(["--exact", "one_more_person_costs_a_bounded_number_of_instructions", "--test-threads=1"]);
    let output = command.env(PEOPLE, people.to_string()).output();
    let output = output.expect("Valgrind is there: run `cargo xtask test`, or install it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let count = said.lines().find(|line| line.contains("refs:")).expect("it counts");
    let digits: String =
        count.rsplit("refs:").next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("a number of instructions")
}
