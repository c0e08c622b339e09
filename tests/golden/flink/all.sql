-- Pipeline plant-a for the SQL client of Flink 2.3.

SET 'pipeline.name' = 'plant-a';
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'Europe/Berlin';
-- A watermark after every row, as Forebay has it.
SET 'pipeline.auto-watermark-interval' = '0 ms';
-- Flink lacks one idleness per table of this connector: here is the longest.
SET 'table.exec.source.idle-timeout' = '60000 ms';

-- Source plant: file in/plant's.csv, lines, csv
-- Flink lacks the header line of CSV.
CREATE TABLE `plant` (
  `ts` TIMESTAMP_LTZ(3),
  `device` STRING,
  `order` DECIMAL(10, 2),
  WATERMARK FOR `ts` AS `ts` - INTERVAL '10' MINUTE,
  PRIMARY KEY (`device`, `order`) NOT ENFORCED
) WITH (
  'connector' = 'filesystem',
  'path' = 'in/plant''s.csv',
  'format' = 'csv',
  'csv.field-delimiter' = ';',
  'csv.quote-character' = '"'
);

-- Source meter: tcp, listens on 127.0.0.1:9000, lines, json
-- Flink lacks this source: put a connector here that brings the same messages.
-- Flink lacks `max_future`: a time far ahead closes all windows up to it.
-- Flink lacks meter.dead: what cannot be decoded is dropped.
-- Flink lacks times that are numbers: declare `t` BIGINT and make a TIMESTAMP_LTZ column of it.
CREATE TABLE `meter` (
  `t` TIMESTAMP_LTZ(3),
  `device` STRING,
  `kwh` DOUBLE,
  -- Flink lacks _arrival: this is the time at which Flink processes the row.
  `_arrival` AS PROCTIME(),
  -- Flink lacks _lsn.
  `_lsn` AS CAST(NULL AS BIGINT),
  -- Flink lacks _peer.
  `_peer` AS CAST(NULL AS STRING),
  WATERMARK FOR `t` AS `t` - INTERVAL '150' SECOND(3, 3)
) WITH (
  'connector' = 'filesystem',
  'path' = '/replace/meter',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.ignore-parse-errors' = 'true'
);

-- Source noise: udp, bound to 127.0.0.1:9001, a message per datagram, raw
-- Flink lacks this source: put a connector here that brings the same messages.
-- Flink lacks noise.dead: what cannot be decoded is dropped.
CREATE TABLE `noise` (
  `line` STRING,
  -- Flink lacks _arrival: this is the time at which Flink processes the row.
  `_arrival` AS PROCTIME()
) WITH (
  'connector' = 'filesystem',
  'path' = '/replace/noise',
  'format' = 'raw'
);

-- Source other: tcp, listens on 127.0.0.1:9002, lines, json
-- Flink lacks this source: put a connector here that brings the same messages.
-- Flink lacks other.dead: what cannot be decoded is dropped.
CREATE TABLE `other` (
  `t` TIMESTAMP_LTZ(3),
  `device` STRING,
  `pos` ROW<`lat` DOUBLE, `select` ARRAY<INT>>,
  WATERMARK FOR `t` AS `t` - INTERVAL '0.001' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '/replace/other',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.ignore-parse-errors' = 'true'
);

-- Table devices: file devices.csv
-- Flink lacks lookups in a file: put a connector here that has the same rows and takes lookups.
-- Flink lacks the header line of CSV.
CREATE TABLE `devices` (
  `id` STRING,
  `room` STRING,
  PRIMARY KEY (`id`) NOT ENFORCED
) WITH (
  'connector' = 'filesystem',
  'path' = 'devices.csv',
  'format' = 'csv',
  'csv.field-delimiter' = ',',
  'csv.quote-character' = '"'
);

CREATE VIEW `a_first` AS
SELECT t, device, kwh FROM meter WHERE _lsn > 0 AND _peer <> 'x' -- not noise
;

-- Flink lacks DEADBAND over streams: the view needs another form there.
-- Flink lacks EWMA over streams: the view needs another form there.
CREATE VIEW `changes` AS
SELECT t, device, kwh, DEADBAND(kwh, 0.5) OVER w AS moved, EWMA(kwh, INTERVAL '10' SECOND) OVER w AS smooth
FROM `a_first`
WINDOW w AS (PARTITION BY device ORDER BY t);

-- Flink lacks FIRST_VALUE over HOP and CUMULATE: the view needs another form there.
-- Flink lacks JSON_ARRAYAGG over HOP and CUMULATE: the view needs another form there.
CREATE VIEW `firsts` AS
SELECT window_start, window_end, device, FIRST_VALUE(kwh) AS first, SUM(kwh) AS kwh, JSON_ARRAYAGG(kwh) AS list
FROM HOP(TABLE meter, DESCRIPTOR(t), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)
GROUP BY window_start, window_end, device;

CREATE VIEW `rooms` AS
SELECT m.kwh, d.room FROM meter AS m LEFT JOIN devices FOR SYSTEM_TIME AS OF m._arrival AS d ON m.device = d.id;

-- Flink lacks APPROX_PERCENTILE over streams: the view needs another form there.
CREATE VIEW `sink_moved` AS
SELECT window_start, window_end, device, APPROX_PERCENTILE(kwh, 0.5) AS median
FROM TUMBLE(TABLE meter, DESCRIPTOR(t), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, device;

-- Sink moved ← changes: file out/moved.csv (csv)
-- There the path is a directory of files.
-- Flink lacks the header line of CSV.
CREATE TABLE `sink_moved_` (
  `t` TIMESTAMP_LTZ(3),
  `device` STRING,
  `kwh` DOUBLE,
  `moved` BOOLEAN,
  `smooth` DOUBLE
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/moved.csv',
  'format' = 'csv',
  'csv.field-delimiter' = '\t',
  'csv.quote-character' = '"'
);

-- Sink lines ← noise: stdout (json)
CREATE TABLE `sink_lines` (
  `line` STRING
) WITH (
  'connector' = 'print'
);

-- Sink late ← sink_moved.late: stdout (json)
-- Flink lacks sink_moved.late: such rows are dropped, or fail the job.

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `sink_moved_` SELECT `t`, `device`, `kwh`, `moved`, `smooth` FROM `changes`;
INSERT INTO `sink_lines` SELECT `line` FROM `noise`;
END;
