//! Expressions as SQL-like text, for `explain`.

use std::fmt;

use super::build::{BinaryOp, Expr, ExprKind, Test, Value};
use super::types::{DataType, Schema};
use super::{decimal, text};

/// An expression with the names of its columns.
pub struct Shown<'a> {
    expr: &'a Expr,
    schema: &'a Schema,
}

impl Expr {
    /// The expression as text, over columns of `schema`.
    pub fn display<'a>(&'a self, schema: &'a Schema) -> Shown<'a> {
        Shown { expr: self, schema }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.expr, self.schema, 0)
    }
}

/// How tightly an operator binds; what binds less is put in parentheses.
fn strength(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::Binary { op, .. } => match op {
            BinaryOp::Or => 1,
            BinaryOp::And => 2,
            BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Concat => 5,
            BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Modulo => 6,
            _ => 4,
        },
        ExprKind::Not(_) => 3,
        ExprKind::Test { .. } | ExprKind::InList { .. } => 4,
        ExprKind::Call(call) if call.name == "LIKE" => 4,
        ExprKind::Negate(_) => 7,
        _ => 8,
    }
}

fn write(f: &mut fmt::Formatter<'_>, expr: &Expr, schema: &Schema, least: u8) -> fmt::Result {
    let own = strength(expr);
    if own < least {
        f.write_str("(")?;
        write(f, expr, schema, 0)?;
        return f.write_str(")");
    }
    match &expr.kind {
        ExprKind::Column(index) => match schema.fields.get(*index) {
            Some(field) => f.write_str(&field.name),
            None => write!(f, "${index}"),
        },
        ExprKind::Literal(value) => literal(f, value, &expr.data_type),
        ExprKind::Cast { input, try_cast } => {
            f.write_str(if *try_cast { "TRY_CAST(" } else { "CAST(" })?;
            write(f, input, schema, 0)?;
            write!(f, " AS {})", expr.data_type)
        }
        ExprKind::Binary { op, left, right } => {
            write(f, left, schema, own)?;
            write!(f, " {} ", op.symbol())?;
            write(f, right, schema, own + 1)
        }
        ExprKind::Negate(input) => {
            f.write_str("-")?;
            write(f, input, schema, own + 1)
        }
        ExprKind::Not(input) => {
            f.write_str("NOT ")?;
            write(f, input, schema, own)
        }
        ExprKind::Test { test, input, negated } => {
            write(f, input, schema, own + 1)?;
            let word = match test {
                Test::Null => "NULL",
                Test::True => "TRUE",
                Test::False => "FALSE",
                Test::Unknown => "UNKNOWN",
            };
            write!(f, " IS {}{word}", if *negated { "NOT " } else { "" })
        }
        ExprKind::Case { whens, otherwise } => {
            f.write_str("CASE")?;
            for (condition, value) in whens {
                f.write_str(" WHEN ")?;
                write(f, condition, schema, 0)?;
                f.write_str(" THEN ")?;
                write(f, value, schema, 0)?;
            }
            f.write_str(" ELSE ")?;
            write(f, otherwise, schema, 0)?;
            f.write_str(" END")
        }
        ExprKind::Coalesce(list) => listed(f, "COALESCE(", list, ")", schema),
        ExprKind::InList { input, list, negated } => {
            write(f, input, schema, own + 1)?;
            listed(f, if *negated { " NOT IN (" } else { " IN (" }, list, ")", schema)
        }
        ExprKind::Field { input, field } => {
            write(f, input, schema, own)?;
            let fields = if let DataType::Row(fields) = &input.data_type { fields.as_slice() } else { &[] };
            match fields.get(*field) {
                Some(field) => write!(f, ".{}", field.name),
                None => write!(f, ".${field}"),
            }
        }
        ExprKind::Index { array, index } => {
            write(f, array, schema, own)?;
            f.write_str("[")?;
            write(f, index, schema, 0)?;
            f.write_str("]")
        }
        ExprKind::Array(list) => listed(f, "ARRAY[", list, "]", schema),
        ExprKind::Row(list) => listed(f, "ROW(", list, ")", schema),
        ExprKind::Call(call) => match &call.form {
            None => {
                f.write_str(call.name)?;
                listed(f, "(", &call.args, ")", schema)
            }
            Some(form) => {
                let mut args = call.args.iter();
                let mut parts = form.split("{}");
                f.write_str(parts.next().unwrap_or_default())?;
                for part in parts {
                    if let Some(arg) = args.next() {
                        write(f, arg, schema, if call.name == "LIKE" { own + 1 } else { 0 })?;
                    }
                    f.write_str(part)?;
                }
                Ok(())
            }
        },
    }
}

fn listed(f: &mut fmt::Formatter<'_>, open: &str, list: &[Expr], close: &str, schema: &Schema) -> fmt::Result {
    f.write_str(open)?;
    for (i, expr) in list.iter().enumerate() {
        f.write_str(if i > 0 { ", " } else { "" })?;
        write(f, expr, schema, 0)?;
    }
    f.write_str(close)
}

fn literal(f: &mut fmt::Formatter<'_>, value: &Value, data_type: &DataType) -> fmt::Result {
    let mut out = String::new();
    match (value, data_type) {
        (Value::Null, DataType::Null) => out.push_str("NULL"),
        (Value::Null, data_type) => return write!(f, "CAST(NULL AS {data_type})"),
        (Value::Boolean(b), _) => out.push_str(if *b { "TRUE" } else { "FALSE" }),
        (Value::Integer(days), DataType::Date) => quoted(&mut out, "DATE", |out| text::format_date(*days, out)),
        (Value::Integer(ms), DataType::Time) => quoted(&mut out, "TIME", |out| text::format_time(*ms, out)),
        (Value::Integer(us), DataType::Timestamp(precision)) => {
            quoted(&mut out, "TIMESTAMP", |out| text::format_timestamp(*us, *precision, out));
        }
        (Value::Integer(us), DataType::TimestampLtz(precision)) => {
            quoted(&mut out, "TIMESTAMP_LTZ", |out| text::format_timestamp(*us, *precision, out));
        }
        (Value::Integer(ms), DataType::IntervalDayTime) => {
            quoted(&mut out, "INTERVAL", |out| text::format_day_time(*ms, out));
            out.push_str(" DAY TO SECOND");
        }
        (Value::Integer(months), DataType::IntervalYearMonth) => {
            quoted(&mut out, "INTERVAL", |out| text::format_year_month(*months, out));
            out.push_str(" YEAR TO MONTH");
        }
        (Value::Integer(i), _) => out.push_str(&i.to_string()),
        (Value::Double(d), _) => text::format_f64(*d, &mut out),
        (Value::Decimal(d), DataType::Decimal(_, scale)) => decimal::format(*d, *scale, &mut out),
        (Value::Decimal(d), _) => out.push_str(&d.to_string()),
        (Value::String(s), _) => out.push_str(&format!("'{}'", s.replace('\'', "''"))),
        (Value::Bytes(bytes), _) => quoted(&mut out, "X", |out| super::cast::push_hex(bytes, out)),
    }
    f.write_str(&out)
}

fn quoted(out: &mut String, word: &str, write: impl FnOnce(&mut String)) {
    out.push_str(word);
    out.push_str(" '");
    write(out);
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use crate::expr::build::{self, BinaryOp, Test, TimeUnit};
    use crate::expr::types::{DataType, Field, Schema};

    #[test]
    fn expressions_read_like_sql() {
        let schema = Schema::new(vec![
            Field::new("temp", DataType::Double),
            Field::new("device", DataType::String),
            Field::new("ts", DataType::TimestampLtz(3)),
        ]);
        let temp = || build::column(0, DataType::Double);
        let device = || build::column(1, DataType::String);
        let number = |text| build::number_literal(text).unwrap();
        let sum = build::binary(BinaryOp::Add, temp(), number("1.5")).unwrap();
        let product = build::binary(BinaryOp::Multiply, sum, number("2")).unwrap();
        let hot = build::binary(BinaryOp::Greater, product, number("30")).unwrap();
        let like = build::like(device(), build::string_literal("p'%"), None, true).unwrap();
        let missing = build::is_test(Test::Null, device(), false).unwrap();
        let or = build::binary(BinaryOp::Or, like, missing).unwrap();
        let both = build::binary(BinaryOp::And, hot, or).unwrap();
        assert_eq!(
            both.display(&schema).to_string(),
            "(temp + 1.5) * 2.0 > 30.0 AND (NOT device LIKE 'p''%' OR device IS NULL)"
        );
        let minute = build::extract(TimeUnit::Minute, build::column(2, DataType::TimestampLtz(3))).unwrap();
        assert_eq!(minute.display(&schema).to_string(), "EXTRACT(MINUTE FROM ts)");
        let later = build::binary(
            BinaryOp::Add,
            build::column(2, DataType::TimestampLtz(3)),
            build::interval_literal("90", TimeUnit::Second, None, None, None).unwrap(),
        );
        assert_eq!(later.unwrap().display(&schema).to_string(), "ts + INTERVAL '+0 00:01:30.000' DAY TO SECOND");
    }
}
