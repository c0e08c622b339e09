//! Random queries, by grammar over three sources, and random logs for them.
//!
//! Doubles in the data are small multiples of a quarter, so that their sums are exact in any order; what is computed from
//! them is compared to nine digits.

use crate::log::{Log, Record};
use crate::random::Random;

/// The sources: `a` and `b` are streams, `v` is a versioned table. Their watermarks are behind by 2 s, 1 s, 1 s; they are
/// idle after 10 s. The event time of `r` is its arrival.
pub const SOURCES: &str = r#"
[source.a]
type = "tcp"
listen = "127.0.0.1:1"
columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", g = "INT", x = "DOUBLE", n = "BIGINT", ok = "BOOLEAN", d = "DECIMAL(10, 2)", s = "STRING", l = "ARRAY<INT>" }
time = { column = "ts", max_out_of_orderness = "2s", idle = "10s" }
[source.b]
type = "tcp"
listen = "127.0.0.1:2"
columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", g = "INT", y = "DOUBLE", m = "INT" }
time = { column = "ts", max_out_of_orderness = "1s", idle = "10s" }
[source.v]
type = "tcp"
listen = "127.0.0.1:3"
columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", gain = "DOUBLE" }
time = { column = "ts", max_out_of_orderness = "1s", idle = "10s" }
key = ["k"]
[source.r]
type = "tcp"
listen = "127.0.0.1:4"
columns = { k = "STRING", g = "INT", x = "DOUBLE" }
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Time,
    Text,
    Int,
    Big,
    Double,
    Bool,
    Decimal,
    /// `window_start`, `window_end`.
    Wall,
}

const NUMBERS: [Type; 4] = [Type::Int, Type::Big, Type::Double, Type::Decimal];

/// What can stand in FROM: a table, a view or a sub-query in parentheses; its time attribute is called `time`.
#[derive(Clone)]
struct Relation {
    text: String,
    columns: Vec<(String, Type)>,
    time: Option<String>,
}

impl Relation {
    fn of(&self, wanted: &[Type]) -> Vec<&(String, Type)> {
        self.columns.iter().filter(|(_, t)| wanted.contains(t)).collect()
    }
}

fn relation(text: &str, columns: &[(&str, Type)], time: Option<&str>) -> Relation {
    Relation {
        text: text.to_owned(),
        columns: columns.iter().map(|(name, t)| ((*name).to_owned(), *t)).collect(),
        time: time.map(str::to_owned),
    }
}

fn table(name: &str) -> Relation {
    let own: &[(&str, Type)] = match name {
        "a" => &[
            ("g", Type::Int),
            ("x", Type::Double),
            ("n", Type::Big),
            ("ok", Type::Bool),
            ("d", Type::Decimal),
            ("s", Type::Text),
        ],
        "b" => &[("g", Type::Int), ("y", Type::Double), ("m", Type::Int)],
        "r" => &[("g", Type::Int), ("x", Type::Double)],
        _ => &[("gain", Type::Double)],
    };
    let time = if name == "r" { "_arrival" } else { "ts" };
    let mut columns = vec![(time, Type::Time), ("k", Type::Text)];
    columns.extend_from_slice(own);
    relation(name, &columns, Some(time))
}

/// A random query: the views that it reads (name, text), and its own text.
pub struct Query {
    pub views: Vec<(String, String)>,
    pub text: String,
}

struct Generator<'a> {
    random: &'a mut Random,
    views: Vec<(String, String)>,
    names: u64,
}

/// A random query.
pub fn query(random: &mut Random) -> Query {
    let mut generator = Generator { random, views: Vec::new(), names: 0 };
    let text = generator.query();
    Query { views: generator.views, text }
}

impl Generator<'_> {
    fn pick(&mut self, list: &[&str]) -> String {
        (*self.random.pick(list)).to_owned()
    }

    /// A fresh column name.
    fn name(&mut self) -> String {
        self.names += 1;
        format!("c{}", self.names)
    }

    fn query(&mut self) -> String {
        match self.random.below(19) {
            0 | 1 => {
                let from = self.stream(2);
                self.project(&from).0
            }
            2..5 => self.aggregate(2).0,
            5 => self.regrouped(),
            6 | 7 => self.over(),
            8 => self.first_rows(),
            9 => self.window_rank(),
            10 => self.aggregate_rank(),
            11 => self.interval_join(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"]).0,
            12 => self.temporal_join().0,
            13 | 14 => self.window_join(),
            15 => self.general_join(),
            16 => self.aggregate_join(),
            17 => {
                // A relation read twice: two paths from one source to one operator.
                let (text, columns, time) = {
                    let from = self.stream(1);
                    self.project(&from)
                };
                let name = format!("v{}", self.views.len());
                self.views.push((name.clone(), text));
                let view = Relation { text: name.clone(), columns, time: Some(time.clone()) };
                let names: Vec<&str> = view.columns.iter().map(|(name, _)| name.as_str()).collect();
                let all = names.join(", ");
                let filter = self.value(&view, Type::Bool, 2);
                let text = format!("SELECT {all} FROM {name} WHERE {filter} UNION ALL SELECT {all} FROM {name}");
                let union = self.nested(text, view.columns.clone(), Some(time));
                let (items, _) = self.aggregates(&union);
                let window = self.window(&union);
                format!(
                    "SELECT window_start, window_end, {} FROM {window} GROUP BY window_start, window_end",
                    items.join(", ")
                )
            }
            _ => self.unnest(),
        }
    }

    /// Makes a sub-query, or a view, of a text.
    fn nested(&mut self, text: String, columns: Vec<(String, Type)>, time: Option<String>) -> Relation {
        let text = if self.random.one_in(4) {
            let name = format!("v{}", self.views.len());
            self.views.push((name.clone(), text));
            name
        } else {
            format!("({text})")
        };
        Relation { text, columns, time }
    }

    /// A relation with a time attribute.
    fn stream(&mut self, depth: u64) -> Relation {
        if depth == 0 {
            let name = self.pick(&["a", "a", "b", "a", "b", "r"]);
            return table(&name);
        }
        match self.random.below(10) {
            0..4 => self.stream(0),
            4 | 5 => {
                let from = self.stream(depth - 1);
                let (text, columns, time) = self.project(&from);
                self.nested(text, columns, Some(time))
            }
            6 | 7 => {
                let text = "SELECT ts, k, g, x FROM a UNION ALL SELECT ts, k, g, y FROM b";
                let columns = [("ts", Type::Time), ("k", Type::Text), ("g", Type::Int), ("x", Type::Double)];
                let union = relation("", &columns, None);
                self.nested(text.to_owned(), union.columns, Some("ts".to_owned()))
            }
            8 => {
                // FULL leaves no time attribute.
                let (text, columns) = self.interval_join(&["JOIN", "LEFT JOIN", "RIGHT JOIN"]);
                self.nested(text, columns, Some("ts".to_owned()))
            }
            _ => {
                let (text, columns, _) = self.aggregate(depth - 1);
                let time = columns.iter().find(|(_, t)| *t == Type::Time).map(|(name, _)| name.clone());
                match time {
                    Some(time) => self.nested(text, columns, Some(time)),
                    None => table("a"),
                }
            }
        }
    }

    /// SELECT … FROM … WHERE: text, columns, time attribute.
    fn project(&mut self, from: &Relation) -> (String, Vec<(String, Type)>, String) {
        let time = from.time.clone().expect("a stream");
        let mut items = vec![time.clone()];
        let mut columns = vec![(time.clone(), Type::Time)];
        for (name, t) in &from.columns {
            if *name != time && self.random.below(3) > 0 {
                items.push(name.clone());
                columns.push((name.clone(), *t));
            }
        }
        for _ in 0..1 + self.random.below(2) {
            let t = *self.random.pick(&[Type::Text, Type::Int, Type::Big, Type::Double, Type::Bool, Type::Decimal]);
            let (value, name) = (self.value(from, t, 3), self.name());
            items.push(format!("{value} AS {name}"));
            columns.push((name, t));
        }
        let filter = self.filter(from);
        (format!("SELECT {} FROM {}{filter}", items.join(", "), self.aliased(from)), columns, time)
    }

    fn aliased(&mut self, from: &Relation) -> String {
        if from.text.starts_with('(') { format!("{} AS t", from.text) } else { from.text.clone() }
    }

    fn filter(&mut self, from: &Relation) -> String {
        if self.random.one_in(3) { format!(" WHERE {}", self.value(from, Type::Bool, 2)) } else { String::new() }
    }

    // ---- Expressions ------------------------------------------------------------------------------------------------

    fn column(&mut self, from: &Relation, t: Type) -> Option<String> {
        let columns = from.of(&[t]);
        if columns.is_empty() { None } else { Some(self.random.pick(&columns).0.clone()) }
    }

    /// A column or a literal.
    fn leaf(&mut self, from: &Relation, t: Type) -> String {
        if self.random.below(4) > 0
            && let Some(column) = self.column(from, t)
        {
            return column;
        }
        match t {
            Type::Time | Type::Wall => {
                self.column(from, t).unwrap_or_else(|| "TIMESTAMP '2026-04-02 00:00:10'".to_owned())
            }
            Type::Text => self.pick(&["'a'", "'b'", "''", "'7'", "'xyz'", "CAST(NULL AS STRING)"]),
            Type::Int => self.pick(&["0", "1", "2", "-3", "CAST(NULL AS INT)"]),
            Type::Big => self.pick(&["CAST(2 AS BIGINT)", "CAST(0 AS BIGINT)", "3000000000"]),
            Type::Double => self.pick(&["1.5e0", "0e0", "CAST(NULL AS DOUBLE)", "-2.25e0"]),
            Type::Bool => self.pick(&["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"]),
            Type::Decimal => self.pick(&["1.25", "0.1", "-3.50", "CAST(2 AS DECIMAL(10, 2))"]),
        }
    }

    fn value(&mut self, from: &Relation, t: Type, depth: u64) -> String {
        if depth == 0 || self.random.one_in(4) {
            return self.leaf(from, t);
        }
        let next = depth - 1;
        // Of any type.
        match self.random.below(12) {
            0 => {
                let (c, x, y) =
                    (self.value(from, Type::Bool, next), self.value(from, t, next), self.value(from, t, next));
                return format!("CASE WHEN {c} THEN {x} ELSE {y} END");
            }
            1 => return format!("COALESCE({}, {})", self.value(from, t, next), self.value(from, t, next)),
            2 => return format!("NULLIF({}, {})", self.value(from, t, next), self.leaf(from, t)),
            3 if t != Type::Bool => {
                let f = self.pick(&["GREATEST", "LEAST"]);
                return format!("{f}({}, {})", self.value(from, t, next), self.value(from, t, next));
            }
            _ => {}
        }
        match t {
            Type::Time | Type::Wall => self.leaf(from, t),
            Type::Text => match self.random.below(13) {
                0 => format!("UPPER({})", self.value(from, t, next)),
                1 => format!("{} || {}", self.value(from, t, next), self.leaf(from, t)),
                2 => {
                    let (start, count) = (self.pick(&["1", "2", "-2", "0"]), self.pick(&["1", "2", "9"]));
                    format!("SUBSTRING({}, {start}, {count})", self.value(from, t, next))
                }
                3 => format!("REPLACE({}, 'a', {})", self.value(from, t, next), self.leaf(from, t)),
                4 => format!("LPAD({}, {}, '*')", self.value(from, t, next), self.pick(&["0", "2", "5"])),
                5 => {
                    let number = *self.random.pick(&[Type::Int, Type::Big, Type::Double, Type::Decimal, Type::Bool]);
                    format!("CAST({} AS STRING)", self.value(from, number, next))
                }
                6 => format!("CONCAT_WS('-', {}, {})", self.value(from, t, next), self.leaf(from, t)),
                7 => format!("TRIM(BOTH 'a' FROM {})", self.value(from, t, next)),
                8 => format!("REVERSE({})", self.value(from, t, next)),
                9 if from.column_of(Type::Time) => {
                    format!("DATE_FORMAT({}, 'yyyy-MM-dd HH:mm:ss')", self.leaf(from, Type::Time))
                }
                10 if from.column_of(Type::Time) => format!("CAST({} AS STRING)", self.leaf(from, Type::Time)),
                11 => format!("REGEXP_EXTRACT({}, '([a-z]+)([0-9]*)', 1)", self.value(from, t, next)),
                _ => format!("RIGHT({}, {})", self.value(from, t, next), self.pick(&["1", "3"])),
            },
            Type::Int => match self.random.below(8) {
                0 => format!("CHAR_LENGTH({})", self.value(from, Type::Text, next)),
                1 => {
                    let number = *self.random.pick(&NUMBERS);
                    format!("CAST({} AS INT)", self.value(from, number, next))
                }
                2 => format!("TRY_CAST({} AS INT)", self.value(from, Type::Text, next)),
                3 => format!("POSITION('a' IN {})", self.value(from, Type::Text, next)),
                4 => format!("ABS({})", self.value(from, t, next)),
                _ => self.arithmetic(from, t, next),
            },
            Type::Big => match self.random.below(6) {
                0 if from.column_of(Type::Time) => {
                    let unit = self.pick(&["SECOND", "MINUTE", "HOUR", "DAY"]);
                    format!("EXTRACT({unit} FROM {})", self.leaf(from, Type::Time))
                }
                1 => {
                    let number = *self.random.pick(&[Type::Int, Type::Double, Type::Decimal]);
                    format!("CAST({} AS BIGINT)", self.value(from, number, next))
                }
                2 => format!("SIGN({})", self.value(from, t, next)),
                _ => self.arithmetic(from, t, next),
            },
            Type::Double => match self.random.below(9) {
                0 => {
                    let number = *self.random.pick(&[Type::Int, Type::Big, Type::Decimal]);
                    format!("CAST({} AS DOUBLE)", self.value(from, number, next))
                }
                1 => {
                    let f = self.pick(&["ABS", "FLOOR", "CEIL", "SIGN"]);
                    format!("{f}({})", self.value(from, t, next))
                }
                2 => format!("ROUND({}, {})", self.value(from, t, 0), self.pick(&["0", "1", "-1"])),
                3 => format!("SQRT(ABS({}))", self.value(from, t, next)),
                4 => format!("{} / 4", self.value(from, t, next)),
                _ => self.arithmetic(from, t, next),
            },
            Type::Decimal => match self.random.below(5) {
                0 => format!("CAST({} AS DECIMAL(10, 2))", self.value(from, Type::Int, next)),
                1 => format!("CAST({} AS DECIMAL(8, 1))", self.value(from, t, next)),
                2 => format!("ROUND({}, 1)", self.value(from, t, 0)),
                3 => format!("ABS({})", self.value(from, t, next)),
                _ => {
                    let op = self.pick(&["+", "-", "*"]);
                    // Cut to a size from which the next step cannot leave 38 digits.
                    format!("CAST({} {op} {} AS DECIMAL(12, 2))", self.value(from, t, next), self.leaf(from, t))
                }
            },
            Type::Bool => match self.random.below(10) {
                0 => format!("NOT {}", self.leaf(from, t)),
                1 | 2 => {
                    let op = self.pick(&["AND", "OR"]);
                    format!("({} {op} {})", self.value(from, t, next), self.value(from, t, next))
                }
                3 => {
                    let of = *self.random.pick(&[Type::Text, Type::Int, Type::Double, Type::Bool]);
                    let test = self.pick(&["IS NULL", "IS NOT NULL"]);
                    format!("({} {test})", self.leaf(from, of))
                }
                4 => {
                    let like = self.pick(&["'a%'", "'%b'", "'_'", "'%'"]);
                    format!("({} LIKE {like})", self.value(from, Type::Text, next))
                }
                5 => format!("({} IN (1, 2, 5))", self.value(from, Type::Int, next)),
                6 => format!("({} NOT IN ('a', 'b'))", self.value(from, Type::Text, next)),
                7 => format!("({} IS {}TRUE)", self.value(from, t, next), self.pick(&["", "NOT "])),
                _ => {
                    let of = *self.random.pick(&[Type::Text, Type::Int, Type::Big, Type::Double, Type::Decimal]);
                    let op = self.pick(&["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]);
                    format!("({} {op} {})", self.value(from, of, next), self.leaf(from, of))
                }
            },
        }
    }

    /// Division and remainder fail where the divisor is 0, on purpose.
    fn arithmetic(&mut self, from: &Relation, t: Type, depth: u64) -> String {
        let op = match t {
            Type::Double => self.pick(&["+", "-", "*"]),
            _ => self.pick(&["+", "-", "*", "+", "-", "*", "/", "%"]),
        };
        format!("({} {op} {})", self.value(from, t, depth), self.leaf(from, t))
    }

    // ---- Windows ----------------------------------------------------------------------------------------------------

    /// A window function that can overlap, or not.
    fn window(&mut self, from: &Relation) -> String {
        let time = from.time.clone().expect("a stream");
        let input = if from.text.starts_with('(') { from.text.clone() } else { format!("TABLE {}", from.text) };
        let offset = self.pick(&["", "", "", ", INTERVAL '3' SECOND"]);
        let window = match self.random.below(5) {
            0 | 1 => format!(
                "TUMBLE({input}, DESCRIPTOR({time}), INTERVAL '{}' SECOND{offset})",
                self.pick(&["5", "10", "20"])
            ),
            2 | 3 => {
                let (slide, size) = *self.random.pick(&[(5, 10), (5, 20), (10, 30), (10, 10)]);
                format!("HOP({input}, DESCRIPTOR({time}), INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND{offset})")
            }
            _ => {
                let (step, size) = *self.random.pick(&[(5, 20), (10, 30)]);
                format!(
                    "CUMULATE({input}, DESCRIPTOR({time}), INTERVAL '{step}' SECOND, INTERVAL '{size}' SECOND{offset})"
                )
            }
        };
        if self.random.one_in(2) { format!("TABLE({window})") } else { window }
    }

    /// Aggregates in a SELECT list, with their types.
    fn aggregates(&mut self, from: &Relation) -> (Vec<String>, Vec<(String, Type)>) {
        let (mut items, mut columns) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(3) {
            let (mut call, t) = self.aggregate_call(from);
            if self.random.one_in(5) && !call.starts_with("CAST(") {
                call += &format!(" FILTER (WHERE {})", self.value(from, Type::Bool, 1));
            }
            let name = self.name();
            items.push(format!("{call} AS {name}"));
            columns.push((name, t));
        }
        (items, columns)
    }

    fn aggregate_call(&mut self, from: &Relation) -> (String, Type) {
        let number = *self.random.pick(&NUMBERS);
        let any = *self.random.pick(&[Type::Int, Type::Double, Type::Text, Type::Decimal, Type::Big]);
        let distinct = self.pick(&["", "", "", "DISTINCT "]);
        match self.random.below(12) {
            0 | 1 => ("COUNT(*)".to_owned(), Type::Big),
            2 => (format!("COUNT({distinct}{})", self.value(from, any, 1)), Type::Big),
            3 | 4 if number == Type::Decimal => {
                let value = self.leaf(from, number);
                (format!("CAST(SUM({distinct}{value}) AS DECIMAL(12, 2))"), number)
            }
            3 => (format!("SUM({distinct}{})", self.value(from, number, 1)), number),
            4 => (format!("AVG({distinct}{})", self.value(from, number, 1)), number),
            5 => (format!("MIN({})", self.value(from, any, 1)), any),
            6 => (format!("MAX({})", self.value(from, any, 1)), any),
            7 => {
                let f = self.pick(&["STDDEV_POP", "VAR_SAMP", "VAR_POP", "STDDEV_SAMP"]);
                (format!("{f}({})", self.leaf(from, Type::Double)), Type::Double)
            }
            8 => (format!("FIRST_VALUE({})", self.leaf(from, any)), any),
            9 => (format!("LAST_VALUE({})", self.leaf(from, any)), any),
            10 => (format!("LISTAGG({distinct}{}, '|')", self.leaf(from, Type::Text)), Type::Text),
            _ => {
                (format!("PERCENTILE({}, {})", self.leaf(from, Type::Double), self.pick(&["0.5", "0.9"])), Type::Double)
            }
        }
    }

    /// Columns to group by.
    fn keys(&mut self, from: &Relation) -> Vec<(String, Type)> {
        let candidates: Vec<(String, Type)> =
            from.of(&[Type::Text, Type::Int, Type::Bool]).into_iter().cloned().collect();
        let mut keys = Vec::new();
        for candidate in candidates {
            if keys.len() < 2 && self.random.one_in(2) {
                keys.push(candidate);
            }
        }
        keys
    }

    /// GROUP BY windows: text, columns, the window's columns among them.
    fn aggregate(&mut self, depth: u64) -> (String, Vec<(String, Type)>, bool) {
        let from = self.stream(depth);
        let session = self.random.one_in(4);
        let mut keys = self.keys(&from);
        let window = if session { self.session(&from, &keys) } else { self.window(&from) };
        let (items, aggregates) = self.aggregates(&from);
        let with_time = self.random.one_in(2);
        let (rt, start, end) = (self.name(), self.name(), self.name());
        let mut select = vec![format!("window_start AS {start}"), format!("window_end AS {end}")];
        let mut columns = vec![(start, Type::Wall), (end, Type::Wall)];
        let mut group = vec!["window_start".to_owned(), "window_end".to_owned()];
        if with_time {
            select.push(format!("window_time AS {rt}"));
            group.push("window_time".to_owned());
            columns.push((rt, Type::Time));
        }
        if session && !keys.is_empty() {
            // All keys of a session's partition.
        } else if self.random.one_in(4) && !keys.is_empty() {
            keys.truncate(2);
            let names: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
            let sets = match self.random.below(3) {
                0 => format!("ROLLUP ({})", names.join(", ")),
                1 => format!("CUBE ({})", names.join(", ")),
                _ => format!("GROUPING SETS (({}), ())", names.join(", ")),
            };
            select.extend(names);
            group.push(sets);
            columns.extend(keys.clone());
            keys.clear();
        }
        select.extend(keys.iter().map(|(name, _)| name.clone()));
        group.extend(keys.iter().map(|(name, _)| name.clone()));
        columns.extend(keys);
        select.extend(items);
        columns.extend(aggregates);
        let filter = if session { String::new() } else { self.filter(&from) };
        let having = if self.random.one_in(6) { " HAVING COUNT(*) > 1" } else { "" };
        let text = format!("SELECT {} FROM {window}{filter} GROUP BY {}{having}", select.join(", "), group.join(", "));
        (text, columns, with_time)
    }

    /// A window's results grouped again by the same windows.
    fn regrouped(&mut self) -> String {
        let from = self.stream(1);
        let (window, keys) = (self.window(&from), self.keys(&from));
        let names: String = keys.iter().map(|(name, _)| format!(", {name}")).collect();
        let (items, columns) = self.aggregates(&from);
        let inner = format!(
            "SELECT window_start, window_end{names}, {} FROM {window} GROUP BY window_start, window_end{names}",
            items.join(", ")
        );
        let inner = self.nested(inner, columns, None);
        let (outer, _) = self.aggregates(&inner);
        let from = self.aliased(&inner);
        format!("SELECT window_start, window_end, {} FROM {from} GROUP BY window_start, window_end", outer.join(", "))
    }

    // ---- OVER, ranks ------------------------------------------------------------------------------------------------

    fn partition(&mut self, from: &Relation) -> String {
        let keys: Vec<String> = self.keys(from).into_iter().map(|(name, _)| name).collect();
        if keys.is_empty() { String::new() } else { format!("PARTITION BY {} ", keys.join(", ")) }
    }

    /// A SESSION function over keys.
    fn session(&mut self, from: &Relation, keys: &[(String, Type)]) -> String {
        let time = from.time.clone().expect("a stream");
        let names: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let partition = match names.as_slice() {
            [] => String::new(),
            [one] => format!(" PARTITION BY {one}"),
            names => format!(" PARTITION BY ({})", names.join(", ")),
        };
        let input = match from.text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
            // PARTITION BY stands behind a name only.
            Some(text) => {
                let name = format!("v{}", self.views.len());
                self.views.push((name.clone(), text.to_owned()));
                name
            }
            None => from.text.clone(),
        };
        format!(
            "SESSION(TABLE {input}{partition}, DESCRIPTOR({time}), INTERVAL '{}' SECOND)",
            self.pick(&["2", "4", "7"])
        )
    }

    fn over(&mut self) -> String {
        let from = self.stream(2);
        let time = from.time.clone().expect("a stream");
        let partition = self.partition(&from);
        let frame = self.pick(&[
            "RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "",
            "",
        ]);
        let mut calls = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            calls.push(if frame.is_empty() {
                let any = *self.random.pick(&[Type::Int, Type::Double, Type::Text]);
                let x = self.value(&from, Type::Double, 1);
                match self.random.below(8) {
                    6 => "RANK()".to_owned(),
                    7 => "DENSE_RANK()".to_owned(),
                    0 => format!("LAG({}, {})", self.leaf(&from, any), self.pick(&["1", "2"])),
                    1 => format!("CHANGED({})", self.leaf(&from, any)),
                    2 => format!("DEADBAND({x}, {})", self.pick(&["1", "2.5"])),
                    3 => format!("HYSTERESIS({x}, -1, 2)"),
                    4 => format!("EWMA({x}, INTERVAL '5' SECOND)"),
                    _ => format!("RATE({x})"),
                }
            } else {
                let number = *self.random.pick(&[Type::Int, Type::Big, Type::Double]);
                let any = *self.random.pick(&[Type::Int, Type::Double, Type::Text]);
                match self.random.below(9) {
                    0 => "COUNT(*)".to_owned(),
                    1 => format!("COUNT({})", self.leaf(&from, any)),
                    2 => format!("SUM({})", self.value(&from, number, 1)),
                    3 => format!("AVG({})", self.value(&from, number, 1)),
                    4 => format!("MIN({})", self.leaf(&from, any)),
                    5 => format!("MAX({})", self.leaf(&from, any)),
                    6 | 7 => {
                        let f = self.pick(&["STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP", "AVG"]);
                        let distinct = self.pick(&["", "", "DISTINCT "]);
                        // Narrow types, whose squares and sums wrap.
                        let to =
                            self.pick(&["TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(9, 2)", "DECIMAL(12, 8)"]);
                        format!("{f}({distinct}CAST({} AS {to}))", self.value(&from, Type::Int, 1))
                    }
                    _ => {
                        let f = self.pick(&["FIRST_VALUE", "LAST_VALUE"]);
                        format!("{f}({})", self.leaf(&from, any))
                    }
                }
            });
        }
        let over = format!("OVER ({partition}ORDER BY {time} {frame})");
        let calls: Vec<String> = calls.into_iter().map(|call| format!("{call} {over} AS {}", self.name())).collect();
        let mut items: Vec<String> = from.columns.iter().map(|(name, _)| name.clone()).collect();
        items.extend(calls);
        let (filter, source) = (self.filter(&from), self.aliased(&from));
        format!("SELECT {} FROM {source}{filter}", items.join(", "))
    }

    fn first_rows(&mut self) -> String {
        let from = self.stream(2);
        let (time, partition, source) =
            (from.time.clone().expect("a stream"), self.partition(&from), self.aliased(&from));
        let partition =
            if partition.is_empty() { format!("PARTITION BY {} ", self.leaf_key(&from)) } else { partition };
        let names: Vec<&str> = from.columns.iter().map(|(name, _)| name.as_str()).collect();
        format!(
            "SELECT {} FROM (SELECT *, ROW_NUMBER() OVER ({partition}ORDER BY {time}) AS rn FROM {source}) WHERE rn = 1",
            names.join(", ")
        )
    }

    fn leaf_key(&mut self, from: &Relation) -> String {
        let keys = from.of(&[Type::Text, Type::Int, Type::Bool, Type::Big, Type::Wall, Type::Time]);
        self.random.pick(&keys).0.clone()
    }

    /// ORDER BY of a rank.
    fn order(&mut self, from: &Relation) -> String {
        let by = self.leaf_key(from);
        let numbers: Vec<String> = from.of(&NUMBERS).into_iter().map(|(name, _)| name.clone()).collect();
        let first = if numbers.is_empty() { by.clone() } else { self.random.pick(&numbers).clone() };
        let way = self.pick(&["", " ASC", " DESC", " DESC NULLS LAST", " ASC NULLS LAST"]);
        if first == by || self.random.one_in(2) { format!("{first}{way}") } else { format!("{first}{way}, {by}") }
    }

    fn window_rank(&mut self) -> String {
        let from = self.stream(1);
        let time = from.time.clone().expect("a stream");
        let keys = self.keys(&from);
        let window = if self.random.one_in(3) { self.session(&from, &keys) } else { self.window(&from) };
        let keys: String = keys.iter().map(|(name, _)| format!(", {name}")).collect();
        let (order, limit) = match self.random.below(3) {
            0 => (format!("{time} DESC"), "= 1".to_owned()),
            1 => (format!("{time} ASC"), "= 1".to_owned()),
            _ => (self.order(&from), self.pick(&["<= 2", "= 1", "<= 3"])),
        };
        let names: Vec<&str> = from.columns.iter().map(|(name, _)| name.as_str()).collect();
        let filter = self.filter(&from);
        format!(
            "SELECT window_start, window_end, {}, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, \
             window_end{keys} ORDER BY {order}) AS rn FROM {window}{filter}) WHERE rn {limit}",
            names.join(", ")
        )
    }

    /// Top-N of a windowed aggregation.
    fn aggregate_rank(&mut self) -> String {
        let from = self.stream(1);
        let (window, key) = (self.window(&from), self.leaf_key(&from));
        format!(
            "SELECT window_start, kk, cnt, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end \
             ORDER BY cnt DESC, kk) AS rn FROM (SELECT window_start, window_end, {key} AS kk, COUNT(*) AS cnt FROM {window} \
             GROUP BY window_start, window_end, {key})) WHERE rn <= 2"
        )
    }

    // ---- Joins, UNNEST ----------------------------------------------------------------------------------------------

    fn interval_join(&mut self, kinds: &[&str]) -> (String, Vec<(String, Type)>) {
        let kind = self.pick(kinds);
        let bounds = self.pick(&[
            "p.ts BETWEEN q.ts - INTERVAL '3' SECOND AND q.ts + INTERVAL '1' SECOND",
            "p.ts BETWEEN q.ts - INTERVAL '2' SECOND AND q.ts",
            "p.ts BETWEEN q.ts + INTERVAL '1' SECOND AND q.ts + INTERVAL '4' SECOND",
            "p.ts BETWEEN q.ts - INTERVAL '5' SECOND AND q.ts - INTERVAL '1' SECOND",
        ]);
        let more = self.pick(&["", "", " AND p.x > q.y", " AND p.g / q.m > 0", " AND p.g = q.g"]);
        // The time of an outer join's own side stays a time attribute; of an inner one both do.
        let time = match kind.as_str() {
            "RIGHT JOIN" => "q.ts",
            "JOIN" => *self.random.pick(&["p.ts", "p.ts", "q.ts"]),
            _ => "p.ts",
        };
        let from = match (kind.as_str(), self.random.below(6)) {
            ("JOIN", 0) => format!("a AS p, b AS q WHERE p.k = q.k AND {bounds}{more}"),
            ("JOIN", 1) => format!("a AS p JOIN b AS q ON p.k = q.k{more} WHERE {bounds}"),
            ("JOIN", 2) => format!("a AS p JOIN b AS q USING (k) WHERE {bounds}{more}"),
            (_, 3) => format!("a AS p {kind} b AS q ON {bounds}{more}"),
            (_, 4) => format!("a AS p {kind} b AS q ON p.k IS NOT DISTINCT FROM q.k AND {bounds}{more}"),
            _ => format!("a AS p {kind} b AS q ON p.k = q.k AND {bounds}{more}"),
        };
        let text = format!("SELECT {time} AS ts, p.k AS k, p.g AS g, p.x AS x, q.y AS y, q.m AS m FROM {from}");
        let columns = [
            ("ts", Type::Time),
            ("k", Type::Text),
            ("g", Type::Int),
            ("x", Type::Double),
            ("y", Type::Double),
            ("m", Type::Int),
        ];
        (text, relation("", &columns, None).columns)
    }

    /// An interval join of any two relations.
    fn general_join(&mut self) -> String {
        let (left, right) = (self.stream(1), self.stream(1));
        let keys = |relation: &Relation| -> Vec<(String, Type)> {
            relation.of(&[Type::Text, Type::Int, Type::Bool]).into_iter().cloned().collect()
        };
        let pairs: Vec<(String, String)> = keys(&left)
            .iter()
            .flat_map(|(l, t)| {
                keys(&right).into_iter().filter(|(_, u)| u == t).map(|(r, _)| (l.clone(), r)).collect::<Vec<_>>()
            })
            .collect();
        if pairs.is_empty() {
            return self.interval_join(&["FULL OUTER JOIN"]).0;
        }
        let (l, r) = self.random.pick(&pairs).clone();
        let kind = self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"]);
        let (lt, rt) = (left.time.clone().expect("a stream"), right.time.clone().expect("a stream"));
        let (before, after) = *self.random.pick(&[(3, 1), (0, 5), (10, 0), (4, 4)]);
        let columns = |relation: &Relation, alias: &str| -> Vec<String> {
            let named = relation.columns.iter().enumerate();
            named.map(|(index, (name, _))| format!("{alias}.{name} AS {alias}{index}")).collect()
        };
        let items = [columns(&left, "p"), columns(&right, "q")].concat();
        format!(
            "SELECT {} FROM {} AS p {kind} {} AS q ON p.{l} = q.{r} AND p.{lt} BETWEEN q.{rt} - INTERVAL '{before}' SECOND AND \
             q.{rt} + INTERVAL '{after}' SECOND",
            items.join(", "),
            left.text,
            right.text
        )
    }

    /// A window join of windowed aggregations.
    fn aggregate_join(&mut self) -> String {
        let (size, kind) = (self.pick(&["5", "10"]), self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]));
        let mut side = |table_name: &str| {
            let (items, columns) = self.aggregates(&table(table_name));
            let text = format!(
                "(SELECT window_start, window_end, k, {} FROM TUMBLE(TABLE {table_name}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND) \
                 GROUP BY window_start, window_end, k)",
                items.join(", ")
            );
            (text, columns)
        };
        let ((left, l), (right, r)) = (side("a"), side("b"));
        let of = |alias: &str, columns: &[(String, Type)]| -> Vec<String> {
            columns.iter().map(|(name, _)| format!("{alias}.{name}")).collect()
        };
        let items = [of("p", &l), of("q", &r)].concat();
        format!(
            "SELECT p.window_start, p.k, q.k AS k2, {} FROM {left} p {kind} {right} q ON p.k = q.k AND p.window_start = \
             q.window_start AND p.window_end = q.window_end",
            items.join(", ")
        )
    }

    fn temporal_join(&mut self) -> (String, ()) {
        let left = self.pick(&["a", "b"]);
        let kind = self.pick(&["JOIN", "LEFT JOIN"]);
        let more = self.pick(&["", "", " AND p.g > 1", " AND c.gain / p.g > 0"]);
        if self.random.one_in(3) {
            // The versions are the last rows of each key of a stream with late rows.
            let name = format!("v{}", self.views.len());
            let filter = self.pick(&["", " WHERE x IS NOT NULL"]);
            let text = format!(
                "SELECT k, x, ts AS since FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn \
                 FROM a{filter}) WHERE rn = 1"
            );
            self.views.push((name.clone(), text));
            let more = self.pick(&["", " AND p.m > 1", " AND p.k = 'x'", " AND c.x > 1"]);
            let text = format!(
                "SELECT p.ts, p.k, p.m, c.x, c.since FROM b AS p {kind} {name} FOR SYSTEM_TIME AS OF p.ts AS c \
                 ON p.k = c.k{more}"
            );
            return (text, ());
        }
        (
            format!(
                "SELECT p.ts, p.k, p.g, c.gain, c.ts AS since FROM {left} AS p {kind} v FOR SYSTEM_TIME AS OF p.ts AS c ON p.k = \
                 c.k{more}"
            ),
            (),
        )
    }

    fn window_join(&mut self) -> String {
        let window = match self.random.below(4) {
            0 | 1 => "TUMBLE(TABLE {t}, DESCRIPTOR(ts), INTERVAL '5' SECOND)",
            2 => "SESSION(TABLE {t} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND)",
            _ => "HOP(TABLE {t}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
        };
        let (mut left, mut right) = (window.replace("{t}", "a"), window.replace("{t}", "b"));
        for (side, table) in [(&mut left, "a"), (&mut right, "b")] {
            let filter = self.filter(&table_of(table));
            *side = format!("(SELECT * FROM TABLE({side}){filter})");
        }
        let windows = "p.window_start = q.window_start AND p.window_end = q.window_end";
        let more = self.pick(&["", "", " AND p.x < q.y", " AND p.g / q.m > 0"]);
        match self.random.below(8) {
            0 => format!(
                "SELECT window_start, window_end, k, g, x FROM {left} p WHERE p.k IN (SELECT k FROM {right} q WHERE {windows})"
            ),
            7 => {
                let not = self.pick(&["", "NOT "]);
                format!(
                    "SELECT window_start, window_end, k, g, x FROM {left} p WHERE (p.k, p.g) {not}IN (SELECT k, m FROM {right} \
                     q WHERE {windows})"
                )
            }
            1 => format!(
                "SELECT window_start, window_end, k, g, x FROM {left} p WHERE EXISTS (SELECT * FROM {right} q WHERE p.k = q.k \
                 AND {windows}{more})"
            ),
            2 => format!(
                "SELECT window_start, window_end, k, g, x FROM {left} p WHERE NOT EXISTS (SELECT * FROM {right} q WHERE p.k = \
                 q.k AND {windows}{more})"
            ),
            _ => {
                let kind = self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                format!(
                    "SELECT p.window_start, q.window_end, p.k, q.k AS k2, p.x, q.y, p.n, q.m FROM {left} p {kind} {right} q ON \
                     p.k = q.k AND {windows}{more}"
                )
            }
        }
    }

    fn unnest(&mut self) -> String {
        let join = self.pick(&["CROSS JOIN UNNEST(a.l)", "LEFT JOIN UNNEST(a.l)"]);
        let (alias, count) =
            *self.random.pick(&[("AS u (e)", "CARDINALITY(a.l)"), ("WITH ORDINALITY AS u (e, i)", "u.i")]);
        let on = if join.starts_with("LEFT") { " ON TRUE" } else { "" };
        let inner = format!("SELECT a.ts AS ts, a.k AS k, a.g AS g, u.e AS e, {count} AS c FROM a {join} {alias}{on}");
        if self.random.one_in(2) {
            return inner;
        }
        let columns = [("ts", Type::Time), ("k", Type::Text), ("g", Type::Int), ("e", Type::Int), ("c", Type::Int)];
        let inner = self.nested(inner, relation("", &columns, None).columns, Some("ts".to_owned()));
        let (items, _) = self.aggregates(&inner);
        let window = self.window(&inner);
        format!(
            "SELECT window_start, window_end, k, {} FROM {window} GROUP BY window_start, window_end, k",
            items.join(", ")
        )
    }
}

impl Relation {
    fn column_of(&self, t: Type) -> bool {
        self.columns.iter().any(|(_, own)| *own == t)
    }
}

fn table_of(name: &str) -> Relation {
    table(name)
}

/// What a random log has in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    pub late: bool,
    pub tied: bool,
    pub null_keys: bool,
    pub idle: bool,
    pub ended: bool,
}

/// A random log of up to some dozen rows for these sources.
pub fn log(random: &mut Random, sources: &[&str]) -> (Log, Traits) {
    // Midnight, and before the changes of daylight-saving time in Berlin.
    let start_ms = *random.pick(&[1_775_088_000_000, 1_775_088_000_000, 1_774_745_985_000, 1_792_889_985_000]);
    let mut traits = Traits::default();
    let mut log = Log::default();
    let (idles, lates) = (random.one_in(2), random.below(3) > 0);
    let (step_ms, nulls) = (*random.pick(&[300_i64, 1000, 2500]), random.below(3) > 0);
    let mut now_us = start_ms * 1000;
    let mut at_ms = start_ms;
    let mut newest: Vec<i64> = vec![i64::MIN; sources.len()];
    let mut seen: Vec<Vec<i64>> = vec![Vec::new(); sources.len()];
    let mut silent = vec![false; sources.len()];
    let mut silent_since = vec![0; sources.len()];
    for _ in 0..8 + random.below(40) {
        if idles && random.one_in(9) {
            // A source falls silent, and time passes; or it comes back.
            let source = random.below(sources.len() as u64) as usize;
            silent[source] = !silent[source];
            silent_since[source] = now_us;
        }
        if random.one_in(if idles { 4 } else { 20 }) {
            now_us += random.below(12) as i64 * 1_000_000;
            log.0.push((now_us, Record::Tick));
            traits.idle |=
                silent.iter().zip(&silent_since).any(|(silent, since)| *silent && now_us - since >= 10_000_000);
        }
        if random.one_in(40) {
            log.0.push((now_us, Record::Start));
        }
        now_us += random.below(3) as i64 * 100_000;
        at_ms += random.below(step_ms as u64 * 2) as i64;
        let source = random.below(sources.len() as u64) as usize;
        if silent[source] {
            continue;
        }
        let time_ms = match random.below(10) {
            0 | 1 if lates => at_ms - random.below(20_000) as i64,
            2 | 3 if !seen[source].is_empty() => *random.pick(&seen[source]),
            4 => at_ms / 1000 * 1000,
            _ => at_ms - random.below(1500) as i64,
        };
        let behind = if sources[source] == "a" { 2000 } else { 1000 };
        traits.late |= time_ms < newest[source].saturating_sub(behind);
        traits.tied |= seen[source].contains(&time_ms);
        newest[source] = newest[source].max(time_ms);
        seen[source].push(time_ms);
        let line = row(random, sources[source], time_ms, nulls, &mut traits);
        log.0.push((now_us, Record::Data { source: sources[source].to_owned(), line }));
    }
    traits.ended = random.below(4) > 0;
    if traits.ended {
        for source in sources {
            log.0.push((now_us, Record::End { source: (*source).to_owned() }));
        }
    }
    (log, traits)
}

fn row(random: &mut Random, source: &str, time_ms: i64, nulls: bool, traits: &mut Traits) -> String {
    let ts = crate::value::timestamp_text(time_ms * 1000, 3, 'T') + "Z";
    let null = |random: &mut Random, value: String| if nulls && random.one_in(6) { "null".to_owned() } else { value };
    let key = random.pick(&["\"a\"", "\"b\"", "\"c\""]).to_string();
    let key = null(random, key);
    traits.null_keys |= key == "null";
    let quarters = |random: &mut Random| (random.below(41) as f64 - 20.0) / 4.0;
    let double = quarters(random).to_string();
    let double = null(random, double);
    let small = (random.below(7) as i64 - 2).to_string();
    let small = null(random, small);
    match source {
        "a" => {
            let n = (random.below(9) as i64 - 4).to_string();
            let n = null(random, n);
            let ok = random.one_in(2).to_string();
            let ok = null(random, ok);
            let d = format!("{}", quarters(random));
            let d = null(random, d);
            let s = random.pick(&["\"\"", "\"a\"", "\"ab1\"", "\"12\"", "\"βa\"", "\"-3\""]).to_string();
            let s = null(random, s);
            let l = random.pick(&["[]", "[1]", "[1, null, 3]", "null", "[2, 2]"]);
            format!(
                "{{\"ts\":\"{ts}\",\"k\":{key},\"g\":{small},\"x\":{double},\"n\":{n},\"ok\":{ok},\"d\":{d},\"s\":{s},\"l\":{l}}}"
            )
        }
        "b" => {
            let m = (random.below(4)).to_string();
            let m = null(random, m);
            format!("{{\"ts\":\"{ts}\",\"k\":{key},\"g\":{small},\"y\":{double},\"m\":{m}}}")
        }
        "r" => format!("{{\"k\":{key},\"g\":{small},\"x\":{double}}}"),
        _ => format!("{{\"ts\":\"{ts}\",\"k\":{key},\"gain\":{double}}}"),
    }
}
