//! How the work grows: with keys, queries, connections, the size of windows, with what has to be replayed, and what
//! checkpoints cost where many keys live. Whole processes, alternating rounds, medians; CPU is that of the engine's process.
//!
//!   cargo bench --bench scale                           everything, 3 rounds
//!   cargo bench --bench scale -- keys windows           only these
//!   cargo bench --bench scale -- backlog 116000000 1    a backlog of 10 GB, one round
//!
//! A number is how many events, a second one how many rounds. `cargo test` runs it tiny, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[path = "harness/by_hand.rs"]
mod by_hand;
mod harness;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::Value;

use harness::{Measured, Running, WINDOWS, generate_of, median, random, status};

const PATIENCE: Duration = Duration::from_secs(1200);
/// Bytes that a connection sends before it is another one's turn.
const TURN_BYTES: usize = 16 << 10;

/// Name, events, what runs.
type Part = (&'static str, u64, fn(&Path, u64, u64));

const PARTS: [Part; 6] = [
    ("keys", 10_000_000, keys),
    ("windows", 3_000_000, windows),
    ("queries", 500_000, queries),
    ("connections", 3_000_000, connections),
    ("backlog", 5_800_000, backlog),
    ("checkpoints", 6_000_000, checkpoints),
];

fn main() {
    if by_hand::is_part() {
        return;
    }
    let number = |text: &String| text.parse().expect("a number");
    if harness::is_part("send", |asked| send(number(&asked[0]) as u16, Path::new(&asked[1]), number(&asked[2]))) {
        return;
    }
    // A thousand connections and what else is open.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("as many descriptors as may be");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !PARTS.iter().any(|(name, ..)| asked(name));
    for (name, events, run) in PARTS.into_iter().filter(|(name, ..)| all || asked(name)) {
        let [events, rounds] = harness::sizes([events, 3], [10_000, 1]);
        println!("{name}: {events} events, medians of {rounds} alternating rounds");
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        run(dir.path(), events, rounds);
    }
}

fn file(path: &Path) -> String {
    format!("type = \"file\"\npath = \"{}\"\nfollow = true", path.display())
}

fn tcp(port: u16) -> String {
    format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\"\nmax_connections = 2000")
}

/// `source`: its type and what belongs to it; `rest`: queries, sinks, other sections.
fn config(source: &str, disorder: &str, rest: &str) -> String {
    format!(
        r#"
[pipeline]
name = "scale"
state = "state"
[source.plant]
{source}
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "{disorder}" }}
{rest}
"#
    )
}

/// A query `NAME` and a sink of it.
fn query(name: &str, sql: &str) -> String {
    format!(
        "[query.{name}]\nsql = \"\"\"{sql}\"\"\"\n[sink.{name}]\ntype = \"file\"\nfrom = \"{name}\"\npath = \"{name}.ndjson\"\n"
    )
}

fn window(size: &str) -> String {
    query(
        "q",
        &format!(
            "SELECT window_start, device, AVG(temp) AS t, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), {size})) \
             GROUP BY window_start, window_end, device"
        ),
    )
}

fn input(dir: &Path, events: u64, devices: u64) -> PathBuf {
    let path = dir.join(format!("input-{devices}.ndjson"));
    generate_of(File::create(&path).expect("the input"), 0..events, random(), |_, random| random % devices);
    path
}

/// An empty directory to run in, with a configuration.
fn place(dir: &Path, config: &str) -> PathBuf {
    let work = dir.join("work");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir(&work).expect("a directory");
    std::fs::write(work.join("scale.toml"), config).expect("writes");
    work
}

fn start(work: &Path) -> Running {
    let errors = File::create(work.join("stderr.txt")).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let command = command.args(["run", "scale.toml"]).current_dir(work).stdin(Stdio::null()).stderr(errors);
    Running(command.spawn().expect("starts"))
}

/// Looks until the engine's status is as wanted; what the process has taken by then.
fn until(running: &mut Running, work: &Path, started: Instant, is_so: impl Fn(&Value) -> bool) -> Measured {
    loop {
        if status(&work.join("state")).is_some_and(|status| is_so(&status)) {
            let (wall, pid) = (started.elapsed(), running.0.id());
            return Measured { wall, cpu: harness::cpu_of(pid), peak_kib: harness::peak_kib_of(pid) };
        }
        let ended = running.0.try_wait().expect("a child");
        let said = || std::fs::read_to_string(work.join("stderr.txt")).unwrap_or_default();
        assert!(ended.is_none() && started.elapsed() < PATIENCE, "in vain: {}", said());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has_rows(events: u64) -> impl Fn(&Value) -> bool {
    move |status| status["sources"][0]["rows"] == events
}

/// Runs a file through a pipeline.
fn run_file(dir: &Path, events: u64, config: &str) -> Measured {
    let work = place(dir, config);
    let started = Instant::now();
    until(&mut start(&work), &work, started, has_rows(events))
}

/// One line for each variant, against the first one.
fn print(names: &[String], events: u64, measured: &[Vec<Measured>]) {
    for (name, of_variant) in names.iter().zip(measured) {
        let pairs = of_variant.iter().zip(&measured[0]);
        let ratio = |pick: fn(&Measured) -> u128| {
            median(pairs.clone().map(|(it, first)| pick(it) * 1000 / pick(first).max(1))) as f64 / 1000.0
        };
        println!(
            "  {name:44} {:>6.2} M events/s  {:>6.3} CPU-s per 1M events  {:>6.1} MB peak   time {:.2} ×, CPU {:.2} ×",
            events as f64 / median(of_variant.iter().map(|it| it.wall)).as_secs_f64() / 1e6,
            median(of_variant.iter().map(|it| it.cpu)).as_secs_f64() / (events as f64 / 1e6),
            median(of_variant.iter().map(|it| it.peak_kib)) as f64 * 1024.0 / 1e6,
            ratio(|it| it.wall.as_micros()),
            ratio(|it| it.cpu.as_micros())
        );
    }
}

/// Runs each variant once in each round.
fn alternate<T>(rounds: u64, variants: &[T], mut run: impl FnMut(&T) -> Measured) -> Vec<Vec<Measured>> {
    let mut measured: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        variants.iter().zip(&mut measured).for_each(|(variant, measured)| measured.push(run(variant)));
    }
    measured
}

/// Checkpoints so often, and never for the sake of the log.
fn by_time(every: &str) -> String {
    format!("[checkpoint]\nevery = \"{every}\"\nlog_bytes = \"1GiB\"\n[log]\nmax_size = \"4GiB\"\n")
}

fn with_memory(memory: &str, config: &str) -> String {
    config.replace("[pipeline]", &format!("[pipeline]\nmemory = \"{memory}\""))
}

/// A window of a day of more and more keys, to its results, beside the hand-written program: with defaults, and with
/// memory for all keys and checkpoints by time alone.
fn keys(dir: &Path, events: u64, rounds: u64) {
    const DEVICES: [u64; 4] = [1, 1000, 100_000, 1_000_000];
    let inputs = DEVICES.map(|devices| (devices, input(dir, events, devices)));
    let (by_hand_out, query) = (dir.join("by-hand.ndjson"), WINDOWS.replace("'10' SECOND", "'1' DAY"));
    let sink = "[sink.q]\ntype = \"file\"\nfrom = \"q\"\npath = \"q.ndjson\"\n";
    let roomy = by_time("10s");
    let variants: Vec<_> = inputs.iter().flat_map(|input| [(input, "64MiB", ""), (input, "1GiB", &roomy)]).collect();
    let mut plain = inputs.each_ref().map(|_| Vec::new());
    let mut ours: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (i, ((_, input), plain)) in inputs.iter().zip(&mut plain).enumerate() {
            plain.push(harness::measure(&mut by_hand::part(input, &by_hand_out, 86_400_000)));
            for (((_, _), memory, room), measured) in variants.iter().zip(&mut ours).skip(2 * i).take(2) {
                let source = format!("type = \"file\"\npath = \"{}\"", input.display());
                let config = config(&source, "500ms", &format!("{room}{query}{sink}"));
                let work = place(dir, &with_memory(memory, &config));
                let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
                measured.push(harness::measure(command.args(["run", "scale.toml"]).current_dir(&work)));
                assert!(harness::same(&by_hand_out, &work.join("q.ndjson")), "the results are not the same");
            }
        }
    }
    print(&DEVICES.map(|devices| format!("{devices} keys, hand-written")), events, &plain);
    let (defaults, roomy): (Vec<_>, Vec<_>) = ours.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    for (name, measured) in [("defaults", defaults), ("room for all", roomy)] {
        let measured: Vec<_> = measured.into_iter().map(|(_, measured)| measured).collect();
        print(&DEVICES.map(|devices| format!("{devices} keys, {name}")), events, &measured);
    }
}

/// Windows of 1,000 keys that end often or never.
fn windows(dir: &Path, events: u64, rounds: u64) {
    let input = input(dir, events, 1000);
    let variants = ["'1' SECOND", "'10' SECOND", "'1' MINUTE", "'1' HOUR", "'1' DAY", "'30' DAY"];
    let measured = alternate(rounds, &variants, |size| {
        run_file(dir, events, &config(&file(&input), "500ms", &window(&format!("INTERVAL {size}"))))
    });
    print(&variants.map(str::to_owned), events, &measured);
}

/// Filters over one source.
fn queries(dir: &Path, events: u64, rounds: u64) {
    let input = input(dir, events, 1000);
    let variants = [1, 10, 100];
    let measured = alternate(rounds, &variants, |count| {
        let queries: String = (0..*count)
            .map(|i| query(&format!("q{i}"), &format!("SELECT ts, temp FROM plant WHERE device = 'device-{i:04}'")))
            .collect();
        run_file(dir, events, &config(&file(&input), "500ms", &queries))
    });
    print(&variants.map(|count| format!("{count} queries")), events, &measured);
    let cpu_s = |of: &Vec<Measured>| median(of.iter().map(|it| it.cpu)).as_secs_f64();
    let (one, hundred) = (cpu_s(&measured[0]), cpu_s(&measured[2]));
    let each = (hundred - one) / 99.0;
    println!(
        "  a further query costs {:.1} % of the first one, which reads, logs and decodes, too",
        each / one * 100.0
    );
}

/// Sends a file over so many connections, by turns, whole lines each time.
fn send(port: u16, input: &Path, connections: u64) {
    let mut sockets: Vec<TcpStream> = (0..connections).map(|_| harness::connect(port)).collect();
    let mut file = BufReader::with_capacity(1 << 20, File::open(input).expect("the input"));
    let mut lines = Vec::new();
    for turn in 0.. {
        lines.clear();
        while lines.len() < TURN_BYTES && file.read_until(b'\n', &mut lines).expect("reads") > 0 {}
        if lines.is_empty() {
            return;
        }
        let index = turn % sockets.len();
        sockets[index].write_all(&lines).expect("sends");
    }
}

/// Sends a file to a pipeline that has started.
fn run_tcp(running: &mut Running, work: &Path, port: u16, input: &Path, connections: u64, events: u64) -> Measured {
    let listens = Instant::now();
    let before = until(running, work, listens, |status| status["replaying"] == false).cpu;
    let started = Instant::now();
    let mut command = harness::part("send");
    let command = command.arg(port.to_string()).arg(input).arg(connections.to_string());
    let mut sender = Running(command.spawn().expect("starts"));
    let measured = until(running, work, started, has_rows(events));
    assert!(sender.0.wait().expect("ends").success());
    Measured { cpu: measured.cpu.saturating_sub(before), ..measured }
}

/// TCP → filter → file.
fn connections(dir: &Path, events: u64, rounds: u64) {
    let input = input(dir, events, 1000);
    let variants = [1, 1000];
    let measured = alternate(rounds, &variants, |connections| {
        let port = harness::free_port();
        let filter = query("q", "SELECT ts, device, temp FROM plant WHERE temp > 50");
        let work = place(dir, &config(&tcp(port), "1h", &filter));
        run_tcp(&mut start(&work), &work, port, &input, *connections, events)
    });
    print(&variants.map(|count| format!("{count} connections")), events, &measured);
}

/// A SIGKILL, with all that was logged to be replayed, against the same pipeline as it was live.
fn backlog(dir: &Path, events: u64, rounds: u64) {
    let input = input(dir, events, 1000);
    let bytes = std::fs::metadata(&input).expect("the input").len();
    // No checkpoint, and nothing trimmed.
    let log_bytes = 8 * bytes + (64 << 20);
    let rest = format!(
        "{}[checkpoint]\nevery = \"24h\"\nlog_bytes = \"{log_bytes}B\"\n[log]\nmax_size = \"{log_bytes}B\"\n",
        window("INTERVAL '10' SECOND")
    );
    let mut measured = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let port = harness::free_port();
        let work = place(dir, &config(&tcp(port), "500ms", &rest));
        let mut running = start(&work);
        measured[0].push(run_tcp(&mut running, &work, port, &input, 1, events));
        drop(running);
        let output = std::fs::read(work.join("q.ndjson")).expect("the output");
        let started = Instant::now();
        let mut running = start(&work);
        let done = |status: &Value| status["replaying"] == false && status["sources"][0]["rows"] == events;
        measured[1].push(until(&mut running, &work, started, done));
        assert!(output == std::fs::read(work.join("q.ndjson")).expect("the output"), "the same output");
    }
    print(&["live".into(), format!("replayed, {} MB", bytes / 1_000_000)], events, &measured);
}

/// A million keys live, of which all or one in a hundred turn dirty from one checkpoint to the next. There is memory for
/// all, so that checkpoints come by time alone.
fn checkpoints(dir: &Path, events: u64, rounds: u64) {
    let keys = events / 6;
    let path = dir.join("input.ndjson");
    let config_with = |every: &str| {
        let rest = format!("{}{}", window("INTERVAL '30' DAY"), by_time(every));
        with_memory("1GiB", &config(&file(&path), "500ms", &rest))
    };
    // The keys, once each; what follows is appended, so that the position in the file holds.
    let base = dir.join("base");
    generate_of(File::create(&path).expect("the input"), 0..keys, random(), |event, _| event);
    let end = std::fs::metadata(&path).expect("the input").len();
    let work = place(dir, &config_with("1m"));
    let mut running = start(&work);
    until(&mut running, &work, Instant::now(), has_rows(keys));
    kill_process(Pid::from_child(&running.0), Signal::TERM).expect("stops");
    assert!(running.0.wait().expect("ends").success());
    std::fs::rename(&work, &base).expect("renames");

    // About two million events a second: one in a hundred keys for as many.
    let some = move |event: u64, random: u64| (event / 2_000_000 * (keys / 100) + random % (keys / 100).max(1)) % keys;
    for (dirty, device) in
        [("1 %", Box::new(some) as Box<dyn Fn(u64, u64) -> u64>), ("all", Box::new(move |_, random| random % keys))]
    {
        let input = File::options().append(true).open(&path).expect("the input");
        input.set_len(end).expect("cuts");
        generate_of(input, keys..keys + events, random(), device);
        let variants = ["1h", "1s"];
        let measured = alternate(rounds, &variants, |every| {
            let work = place(dir, "");
            assert!(Command::new("cp").arg("-a").arg(base.join(".")).arg(&work).status().expect("copies").success());
            std::fs::write(work.join("scale.toml"), config_with(every)).expect("writes");
            let started = Instant::now();
            until(&mut start(&work), &work, started, has_rows(keys + events))
        });
        let names = variants.map(|every| format!("{keys} keys, {dirty} dirty, a checkpoint each {every}"));
        print(&names, events, &measured);
    }
}
