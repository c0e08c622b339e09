//! ORDER BY a time attribute, in the list or not.

use crate::conformance::at_all_batch_sizes;

#[test]
fn the_time_need_not_be_in_the_list() {
    let with_time = at_all_batch_sizes("SELECT device, temp, ts FROM plant WHERE temp IS NOT NULL ORDER BY ts").rows;
    let without = at_all_batch_sizes("SELECT device, temp FROM plant AS p WHERE temp IS NOT NULL ORDER BY p.ts").rows;
    let cut: String = with_time.lines().map(|line| format!("{}}}\n", line.split(",\"ts\"").next().unwrap())).collect();
    assert!(without.lines().count() > 2000, "{without}");
    assert_eq!(without, cut);
    let times: Vec<&str> = with_time.lines().map(|line| line.split("\"ts\":").nth(1).unwrap()).collect();
    assert!(times.is_sorted());
}
