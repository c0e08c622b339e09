//! An expression over a table of every type: it never panics, and a row's value does not depend on its neighbours.
#![no_main]

use std::sync::LazyLock;

use arrow_array::{Array, ArrayRef};
use forebay::expr::build::Expr;
use forebay::expr::eval::{eval, eval_predicate};
use forebay::expr::{Batch, EvalContext, RowErrors};
use forebay::format::FormatConfig;
use forebay::sql::plan::{Node, Plan};
use forebay::sql::{Catalog, plan_query};
use forebay_fuzz::{catalog, decode_whole, nested};
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;

struct Table {
    catalog: Catalog,
    columns: Vec<ArrayRef>,
    rows: usize,
    context: EvalContext,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let text = include_bytes!("../../rows.ndjson");
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let decoded = decode_whole(FormatConfig::Json.decoder(&nested(), None).as_mut(), &lines);
    assert_eq!(decoded.refused, []);
    let mut columns = decoded.columns;
    let rows = lines.len();
    let catalog = catalog();
    let declared = catalog.schema("t").expect("a table").fields.iter().skip(columns.len());
    let system: Vec<ArrayRef> =
        declared.map(|field| arrow_array::new_null_array(&field.data_type.arrow(), rows)).collect();
    columns.extend(system);
    Table {
        catalog,
        columns,
        rows,
        context: EvalContext { time_zone: TimeZone::get("Europe/Berlin").expect("a zone") },
    }
});

/// Expressions of projections and filters that stand directly on the table.
fn expressions(plan: &Plan) -> (Vec<Expr>, Option<Expr>) {
    let (exprs, input) = match &plan.node {
        Node::Project { exprs, input } => (exprs.clone(), input.as_ref()),
        _ => return (Vec::new(), None),
    };
    match &input.node {
        Node::Scan { relation } if relation == "t" => (exprs, None),
        Node::Filter { input, predicate } if matches!(&input.node, Node::Scan { relation } if relation == "t") => {
            (exprs, Some(predicate.clone()))
        }
        _ => (Vec::new(), None),
    }
}

/// Values of `expr` and the rows that failed.
fn values(expr: &Expr, columns: &[ArrayRef], rows: usize) -> (ArrayRef, Vec<u32>) {
    let mut errors = RowErrors::default();
    let array = eval(expr, &Batch { columns, rows }, &TABLE.context, &mut errors);
    assert_eq!(array.len(), rows);
    assert_eq!(*array.data_type(), expr.data_type.arrow());
    let mut failed: Vec<u32> = errors.list.iter().map(|(row, _)| *row).collect();
    failed.sort_unstable();
    failed.dedup();
    assert!(errors.list.iter().all(|(_, reason)| !reason.starts_with("bug")), "{errors:?}");
    (array, failed)
}

fuzz_target!(|text: &str| {
    let table = &*TABLE;
    let query = format!("SELECT {text}\nFROM t");
    let Ok(plan) = plan_query(&query, &table.catalog).or_else(|_| plan_query(text, &table.catalog)) else { return };
    let (exprs, predicate) = expressions(&plan);
    for expr in &exprs {
        let (whole, failed) = values(expr, &table.columns, table.rows);
        for row in 0..table.rows {
            let one: Vec<ArrayRef> = table.columns.iter().map(|column| column.slice(row, 1)).collect();
            let (alone, failed_alone) = values(expr, &one, 1);
            assert_eq!(!failed_alone.is_empty(), failed.contains(&(row as u32)), "row {row}");
            assert_eq!(format!("{:?}", whole.slice(row, 1)), format!("{alone:?}"), "row {row}");
        }
    }
    if let Some(predicate) = predicate {
        let mut errors = RowErrors::default();
        let batch = Batch { columns: &table.columns, rows: table.rows };
        assert_eq!(eval_predicate(&predicate, &batch, &table.context, &mut errors).len(), table.rows);
    }
});
