//! Files that are wrong, cut off, or not of one job: an error that says where, and never more.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use polyrank_trace::{Job, Selection, TraceError, read};
use serde_json::{Value, json};
use world::{World, message, step};

fn dump() -> Value {
    let mut world = World::new(2, &step());
    world.calls[0].push(message(0, 0, 1, true));
    world.calls[1].push(message(0, 0, 1, false));
    world.dumps().remove(0)
}

fn error(value: &Value) -> String {
    read("rank0.json", &value.to_string()).unwrap_err().to_string()
}

#[test]
fn errors_name_the_file_the_entry_and_the_field() {
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 17] = [
        (|it| it["version"] = "3.0".into(), "rank0.json: version: expected version 2"),
        (|it| it["rank"] = 4_000_000.into(), "rank 4000000 is not below"),
        (|it| it["rank"] = Value::Null, "the field \"rank\" is missing"),
        (|it| it["world_size"] = 0.into(), "world_size: expected 1 to"),
        (|it| it["world_size"] = 4_000_000_000_u64.into(), "world_size: expected 1 to"),
        (|it| it["entries"] = json!({}), "entries: expected an array, not an object"),
        (|it| it["entries"][2] = 5.into(), "entries[2]: expected an object, not 5"),
        (
            |it| it["entries"][1]["record_id"] = (-1).into(),
            "entries[1].record_id: expected a number",
        ),
        (
            |it| it["entries"][1]["state"] = "lost".into(),
            "entries[1].state: expected \"scheduled\"",
        ),
        (|it| it["entries"][1]["collective_seq_id"] = "x".into(), "entries[1].collective_seq_id:"),
        (|it| it["entries"][0]["input_sizes"] = json!([[1, -2]]), "entries[0].input_sizes[0][1]:"),
        (
            |it| it["entries"][0]["process_group"] = json!(["other", "other"]),
            "entries[0]: its group \"other\" (pg_id \"0\") is not in pg_config",
        ),
        (|it| it["entries"][0]["waits_for"] = json!([9]), "entries[0].waits_for[0]: rank 9 is not"),
        (
            |it| it["entries"][3]["profiling_name"] = "polyrank:send 0->5".into(),
            "entries[3].profiling_name: rank 5 is not in the group, which has 2",
        ),
        (
            |it| it["entries"][3]["profiling_name"] = "polyrank:send".into(),
            "entries[3].profiling_name: expected ranks",
        ),
        (
            |it| it["pg_config"]["0"]["ranks"] = "[0, 0]".into(),
            "pg_config.0.ranks: rank 0 is named",
        ),
        (
            |it| it["pg_config"]["0"]["ranks"] = "[0, 4000000]".into(),
            "pg_config.0.ranks: rank 4000000",
        ),
    ];
    for (change, words) in changes {
        let mut value = dump();
        change(&mut value);
        let said = error(&value);
        assert!(said.starts_with("rank0.json: ") && said.contains(words), "{said}; not: {words}");
        if words.contains(" version: ") {
            continue;
        }
        // The same in a gathered file, which has its version once.
        let gathered = json!({ "version": "2.10", "ranks": [dump(), value] });
        let said = error(&gathered);
        assert!(said.contains("ranks[1]"), "{said}");
    }
}

#[test]
fn unknown_fields_are_ignored_and_missing_ones_are_none() {
    let mut value = dump();
    value["invented"] = json!({ "deep": [1, 2] });
    for name in ["hostname", "pid", "run_id", "reason", "clock_offset_ns", "pg_status"] {
        value.as_object_mut().unwrap().remove(name);
    }
    for entry in value["entries"].as_array_mut().unwrap() {
        entry["invented"] = json!(null);
        let needed =
            ["record_id", "pg_id", "process_group", "profiling_name", "state", "time_created_ns"];
        entry.as_object_mut().unwrap().retain(|name, _| needed.contains(&name.as_str()));
    }
    let job = Job::new(vec![read("a", &value.to_string()).unwrap()]).unwrap();
    assert_eq!((job.world_size, job.missing.clone()), (2, vec![1]));
    assert!(!job.report(&Selection::default()).is_empty());
}

#[test]
fn clocks_are_set_to_that_of_who_gathered() {
    let mut dumps = World::new(2, &[step(), step()].concat()).dumps();
    let shift = |value: &mut Value, by: i64| *value = (value.as_i64().unwrap() + by).into();
    shift(&mut dumps[1]["dumped_at_ns"], -5_000_000_000);
    for entry in dumps[1]["entries"].as_array_mut().unwrap() {
        for name in
            ["time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"]
        {
            shift(&mut entry[name], -5_000_000_000);
        }
    }
    dumps[1]["clock_offset_ns"] = 5_000_000_000_i64.into();
    let files = dumps.iter().map(|dump| read("a", &dump.to_string()).unwrap()).collect();
    let job = Job::new(files).unwrap();
    assert_eq!(job.dumps[0].entries[0].created_ns, job.dumps[1].entries[0].created_ns);
    assert_eq!(job.findings(), []);
}

#[test]
fn files_of_two_runs_do_not_belong_together() {
    let dumps = World::new(2, &step()).dumps();
    let mut other = dumps[1].clone();
    other["run_id"] = "run-2".into();
    let files = |dumps: &[&Value]| {
        let named = dumps.iter().enumerate();
        named.map(|(at, it)| read(&format!("{at}.json"), &it.to_string()).unwrap()).collect()
    };
    let error = Job::new(files(&[&dumps[0], &other])).unwrap_err();
    let said = "0.json is of the run run-1, and 1.json of the run run-2; give the files of one run";
    assert_eq!(error.to_string(), said);
    // A rank may know of a part of its job alone.
    other["run_id"] = Value::Null;
    other["world_size"] = 3.into();
    assert_eq!(Job::new(files(&[&dumps[0], &other])).unwrap().missing, [2]);
    assert_eq!(Job::new(Vec::new()).unwrap_err(), TraceError::Nothing);
    let empty = read("a", r#"{"version": "2.10", "ranks": []}"#).unwrap();
    assert_eq!(Job::new(vec![empty]).unwrap_err(), TraceError::Nothing);
}

#[test]
fn nothing_that_is_cut_off_is_read() {
    let text = World::new(2, &step()).gathered(&[]).to_string();
    for length in (0..text.len()).step_by(97) {
        let error = read("cut.json", &text[..length]).unwrap_err();
        assert!(matches!(error, TraceError::NotJson { .. }), "{length}: {error}");
        assert!(error.to_string().starts_with("cut.json is not a whole JSON file"), "{error}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(read("deep", &deep), Err(TraceError::NotJson { .. })));
}

/// A file with some of its values replaced, which may be right or wrong: whatever is read can be
/// told, drawn and converted.
#[test]
fn whatever_is_read_can_be_shown() {
    let seed = std::env::var("POLYRANK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("POLYRANK_SEED={seed}");
    let mut random = Random(seed);
    let mut world = World::new(3, &[step(), step()].concat());
    world.calls[0].push(message(0, 0, 1, true));
    world.calls[1].push(message(0, 0, 1, false));
    world.groups.push(("dp", vec![2, 0]));
    world.calls[2].push(world::collective(1, "allreduce", 7));
    let whole = world.gathered(&[]);
    let mut read_count = 0;
    for _ in 0..600 {
        let mut value = whole.clone();
        for _ in 0..1 + random.below(3) {
            change(&mut value, &mut random);
        }
        let Ok(file) = read("a", &value.to_string()) else { continue };
        let Ok(job) = Job::new(vec![file]) else { continue };
        read_count += 1;
        let all = Selection::default();
        assert!(!job.report(&all).is_empty());
        assert!(job.report_json(&all).is_object());
        let svg = job.svg(&all);
        assert!(!svg.contains("NaN") && !svg.contains("inf\""));
        assert!(job.perfetto(&all)["traceEvents"].is_array());
        assert_eq!(job.flight_recordings().len(), job.dumps.len());
    }
    assert!(read_count > 60, "{read_count} of 600 were read");
}

/// Replaces a value somewhere by another.
fn change(value: &mut Value, random: &mut Random) {
    let children = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if children > 0 && random.below(12) > 0 {
        let at = random.below(children);
        let child = match value {
            Value::Object(fields) => fields.values_mut().nth(at),
            Value::Array(items) => items.get_mut(at),
            _ => None,
        };
        return change(child.unwrap(), random);
    }
    *value = match random.below(12) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(""),
        4 => json!(0),
        5 => json!(random.below(5)),
        6 => json!(u64::MAX),
        7 => json!(i64::MAX),
        8 => json!(-1),
        9 => json!("completed"),
        10 => json!("polyrank:recv 1<-?"),
        _ => json!(true),
    };
}

/// A small generator whose numbers follow from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}
