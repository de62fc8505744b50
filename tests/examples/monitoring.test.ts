/**
 * What `deploy/monitoring/` reads is what `/metrics` has. The table of docs/metrics.md stands for the page: another test holds it
 * equal to the code.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';

import { parse } from 'yaml';

import { inRepository } from '../support/repository.ts';

interface Metric {
  readonly type: string;
  readonly labels: readonly string[];
}

const read = (file: string): string => readFileSync(inRepository(file), 'utf8');

const metrics = new Map(
  [...read('docs/metrics.md').matchAll(/^\| `([a-z_]+)` \| (counter|gauge|histogram) \| ([^|]*) \|/gm)].map(
    ([, name, type, labels]): [string, Metric] => [
      name!,
      { type: type!, labels: [...labels!.matchAll(/`([a-z]+)`/g)].map(([, label]) => label!) },
    ],
  ),
);

/** Labels that Prometheus itself adds to every series. */
const targetLabels = ['instance', 'job', 'exported_job'];

/** What is wrong in an expression of PromQL: metrics and labels that the program does not have, types, parentheses. */
function faultsOf(expression: string): string[] {
  const faults: string[] = [];
  const bare = expression.replaceAll(/"[^"]*"/g, '""');
  const named = [...bare.matchAll(/\b(?:tokenhouse|process)_[a-z_]+/g)].map(([name]) => name);
  for (const [open, close] of ['()', '{}', '[]'] as const)
    if (bare.split(open!).length !== bare.split(close!).length) faults.push(`${open}${close} are not in pairs`);
  if (named.length === 0 && bare !== 'up{job=""} == 0') faults.push('names no metric');
  const known = new Set(targetLabels);
  for (const name of named) {
    const part = /_(bucket|sum|count)$/.exec(name)?.[0] ?? '';
    const metric = metrics.get(name) ?? metrics.get(name.slice(0, name.length - part.length));
    if (metric === undefined) {
      faults.push(`no metric ${name}`);
      continue;
    }
    const isPart = !metrics.has(name);
    if (isPart !== (metric.type === 'histogram')) faults.push(`${name} is no series of a ${metric.type}`);
    for (const label of [...metric.labels, ...(part === '_bucket' ? ['le'] : [])]) known.add(label);
    const isRated = new RegExp(`\\b(?:rate|increase)\\(${name}\\b`).test(bare);
    if (isRated && metric.type === 'gauge') faults.push(`the rate of the gauge ${name}`);
    const labels = new RegExp(`\\b${name}\\{([^}]*)\\}`).exec(bare)?.[1] ?? '';
    for (const [, label] of labels.matchAll(/([a-z_]+) *(?:=~|!~|!=|=)/g))
      if (![...metric.labels, ...targetLabels].includes(label!)) faults.push(`${name} has no label ${label}`);
  }
  for (const [, list] of bare.matchAll(/\b(?:by|on|without|ignoring) *\(([^)]*)\)/g))
    for (const label of list!.split(/ *, */)) if (!known.has(label)) faults.push(`no label ${label}`);
  return faults;
}

test('the check finds what is wrong', () => {
  assert.ok(metrics.size > 30);
  for (const [expression, fault] of [
    ['rate(tokenhouse_nothing_total[5m])', 'no metric tokenhouse_nothing_total'],
    ['tokenhouse_backend_ready{colour="x"} == 0', 'tokenhouse_backend_ready has no label colour'],
    ['sum by (colour) (tokenhouse_backend_ready)', 'no label colour'],
    ['rate(tokenhouse_requests_running[5m])', 'the rate of the gauge tokenhouse_requests_running'],
    ['rate(tokenhouse_own_seconds[5m])', 'tokenhouse_own_seconds is no series of a histogram'],
    ['rate(tokenhouse_requests_total_sum[5m])', 'tokenhouse_requests_total_sum is no series of a counter'],
    ['sum(tokenhouse_backend_ready', '() are not in pairs'],
    ['vector(1)', 'names no metric'],
  ] as const)
    assert.deepEqual(faultsOf(expression), [fault], expression);
});

describe('alerts.yaml', () => {
  interface Rule {
    readonly alert: string;
    readonly expr: string;
    readonly for?: string;
    readonly labels: { readonly severity: string };
    readonly annotations: { readonly summary: string };
  }
  const file = parse(read('deploy/monitoring/alerts.yaml')) as {
    readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
  };
  const rules = file.groups.flatMap((group) => group.rules);

  test('has rules with different names, as Prometheus reads them', () => {
    assert.deepEqual(Object.keys(file), ['groups']);
    assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
    assert.ok(rules.length > 0);
  });

  for (const rule of rules)
    test(rule.alert, () => {
      const { expr, for: lasting = '1m', labels, annotations, ...rest } = rule;
      assert.deepEqual(Object.keys(rest), ['alert']);
      assert.deepEqual(faultsOf(expr), []);
      assert.match(lasting, /^\d+[smh]$/);
      assert.ok(['warning', 'critical'].includes(labels.severity));
      for (const [, label] of annotations.summary.matchAll(/\$labels\.([a-z_]+)/g))
        assert.ok(label === 'instance' || label === 'exported_job' || labelsOf(expr).has(label!), `no label ${label}`);
    });

  /** Labels that the result of the expression may have. */
  function labelsOf(expression: string): ReadonlySet<string> {
    const kept = [...expression.matchAll(/\bby *\(([^)]*)\)/g)].flatMap(([, list]) => list!.split(/ *, */));
    if (kept.length > 0) return new Set(kept);
    const named = [...expression.matchAll(/\btokenhouse_[a-z_]+/g)].map(([name]) => name);
    return new Set(named.flatMap((name) => metrics.get(name)?.labels ?? []));
  }
});

describe('dashboard.json', () => {
  interface Panel {
    readonly id: number;
    readonly type: string;
    readonly title: string;
    readonly datasource?: { readonly type: string; readonly uid: string };
    readonly fieldConfig?: { readonly defaults: { readonly unit?: string }; readonly overrides: readonly unknown[] };
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
    readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly legendFormat: string }[];
  }
  const dashboard = JSON.parse(read('deploy/monitoring/dashboard.json')) as {
    readonly title: string;
    readonly uid: string;
    readonly schemaVersion: number;
    readonly panels: readonly Panel[];
    readonly templating: { readonly list: readonly { readonly name: string; readonly query: string }[] };
  };
  const { panels, templating } = dashboard;

  test('panels have ids of their own and do not overlap, and variables exist', () => {
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
    const taken = new Set<string>();
    for (const { gridPos, title } of panels)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          assert.ok(x < 24 && !taken.has(`${x}/${y}`), title);
          taken.add(`${x}/${y}`);
        }
    const names = [...templating.list.map(({ name }) => name), '__rate_interval'];
    for (const [, name] of JSON.stringify(panels).matchAll(/\$\{?([a-z_]+)/g)) assert.ok(names.includes(name!), name);
    for (const { query } of templating.list) {
      const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(query) ?? [];
      if (metric === undefined) assert.equal(query, 'prometheus');
      else assert.ok([...metrics.get(metric)!.labels, ...targetLabels].includes(label!), query);
    }
  });

  test('has what Grafana asks of a dashboard that is imported', () => {
    assert.ok(dashboard.title !== '' && /^[A-Za-z0-9_-]{1,40}$/.test(dashboard.uid));
    // Panels of this form came with 36; Grafana itself brings older ones up to date.
    assert.ok(Number.isInteger(dashboard.schemaVersion) && dashboard.schemaVersion >= 36);
    assert.equal(templating.list.find(({ name }) => name === 'datasource')?.query, 'prometheus');
  });

  for (const { title, type, targets = [], datasource, fieldConfig } of panels) {
    if (type === 'row') continue;
    test(title, () => {
      assert.equal(type, 'timeseries');
      assert.deepEqual(datasource, { type: 'prometheus', uid: '${datasource}' });
      assert.ok(Array.isArray(fieldConfig?.overrides) && typeof fieldConfig.defaults.unit === 'string');
      assert.deepEqual(
        targets.map(({ refId }) => refId),
        targets.map((_, index) => 'ABC'[index]),
      );
      assert.ok(targets.length > 0);
      for (const { expr } of targets) assert.deepEqual(faultsOf(expr), [], expr);
    });
  }
});

test('keda.yaml asks for metrics that exist, and keeps one server', () => {
  const { kind, spec } = parse(read('deploy/monitoring/keda.yaml')) as {
    readonly kind: string;
    readonly spec: {
      readonly minReplicaCount: number;
      readonly triggers: readonly {
        readonly type: string;
        readonly metadata: { readonly query: string; readonly threshold: string };
      }[];
    };
  };
  assert.equal(kind, 'ScaledObject');
  assert.equal(spec.minReplicaCount, 1);
  for (const { type, metadata } of spec.triggers) {
    assert.equal(type, 'prometheus');
    assert.deepEqual(faultsOf(metadata.query), []);
    // KEDA reads metadata as strings.
    assert.match(metadata.threshold, /^\d+$/);
  }
});
