/** What kinds of servers say of their load and their caches: real texts, and those of a server that means harm. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  llamaServerReport,
  sglangReport,
  slotsReport,
  vllmReport,
} from '../../../../src/inference/engines/openai/server-report.ts';
import { inRepository } from '../../../support/repository.ts';

const recorded = (file: string): string => readFileSync(inRepository('tests', 'fixtures', 'upstream', file), 'utf8');

const vllmPage = recorded('vllm-0.32/metrics.txt');
const llamaPage = recorded('llama-server/metrics.txt');
const slots = recorded('llama-server/slots.txt');

test('vLLM tells its requests, and the size of its cache', () => {
  assert.deepEqual(vllmReport(vllmPage), { running: 2, waiting: 3, cacheTokens: 46_592 });
});

/** The lines that matter, as several engines, versions and settings write them. */
const vllmLines = (config: readonly string[], more = ''): string =>
  [
    '# TYPE vllm:num_requests_running gauge',
    ...config.map((_, engine) => `vllm:num_requests_running{engine="${engine}",model_name="m"} 2.0`),
    '# TYPE vllm:num_requests_waiting gauge',
    ...config.map((_, engine) => `vllm:num_requests_waiting{engine="${engine}",model_name="m"} 1.0`),
    'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0',
    ...config.map((labels) => `vllm:cache_config_info{${labels}} 1.0`),
    more,
  ].join('\n');

const vllmRows: readonly (readonly [string, string, number | undefined])[] = [
  [
    'an older one tells blocks',
    vllmLines(['block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="2756"']),
    44_096,
  ],
  [
    'the blocks are those of all engines',
    vllmLines(['engine="0",block_size="16",num_gpu_blocks="100"', 'engine="1",block_size="16",num_gpu_blocks="100"']),
    1_600,
  ],
  [
    'the tokens are those of one',
    vllmLines([
      'engine="0",block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="750"',
      'engine="1",block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="750"',
    ]),
    1_500,
  ],
  [
    'without prefix caching there is none',
    vllmLines(['enable_prefix_caching="False",block_size="16",num_gpu_blocks="100"']),
    0,
  ],
  [
    'what is offloaded is more than it tells',
    vllmLines(['kv_offloading_size="16.0",block_size="16",num_gpu_blocks="100"']),
    undefined,
  ],
  [
    'what a connector has is more than it tells',
    vllmLines(['block_size="16",num_gpu_blocks="100"'], 'vllm:external_prefix_cache_queries_total{engine="0"} 1.2e+06'),
    undefined,
  ],
  ['before its memory is measured it is not known', vllmLines(['block_size="16",num_gpu_blocks="None"']), undefined],
  [
    'a label may have quotes',
    vllmLines(['cache_dtype="a\\",num_gpu_blocks=\\"9",block_size="16",num_gpu_blocks="10"']),
    160,
  ],
];
for (const [name, text, cacheTokens] of vllmRows)
  test(`vLLM: ${name}`, () => {
    const engines = text.split('vllm:cache_config_info{').length - 1;
    assert.deepEqual(vllmReport(text), { running: 2 * engines, waiting: engines, cacheTokens });
  });

test('SGLang: ranks say the same, replicas are added up, and the cache in the host has that of the GPU', () => {
  // Lines of its metrics_collector.py, of two replicas of two ranks, with priorities.
  const line = (name: string, value: number, replica: number, rank: number, priority = '') =>
    `sglang:${name}{model_name="m",engine_type="unified",tp_rank="${rank}",pp_rank="0",dp_rank="${replica}",priority="${priority}"} ${value}.0`;
  const lines = [0, 1].flatMap((replica) =>
    [0, 1].flatMap((rank) => [
      line('num_running_reqs', 3, replica, rank),
      line('num_running_reqs', 2, replica, rank, '1'),
      line('num_queue_reqs', replica, replica, rank),
      line('max_total_num_tokens', 60_000, replica, rank),
    ]),
  );
  assert.deepEqual(sglangReport(lines.join('\n')), { running: 6, waiting: 1, cacheTokens: 120_000 });
  lines.push(line('hicache_host_total_tokens', 200_000, 0, 0), line('hicache_host_total_tokens', 200_000, 1, 0));
  assert.equal(sglangReport(lines.join('\n'))?.cacheTokens, 400_000);
  // Without --enable-metrics there is no such page; older ones have no labels but the model's name.
  const plain = 'sglang:num_running_reqs{model_name="m"} 1.0\nsglang:num_queue_reqs{model_name="m"} 0.0\n';
  assert.deepEqual(sglangReport(plain), { running: 1, waiting: 0, cacheTokens: undefined });
});

test('llama-server tells its requests, or without --metrics its slots', () => {
  assert.deepEqual(llamaServerReport(llamaPage), { running: 0, waiting: 0, cacheTokens: undefined });
  const busy = llamaPage.replace('requests_processing 0', 'requests_processing 2').replace('deferred 0', 'deferred 5');
  assert.deepEqual(llamaServerReport(busy), { running: 2, waiting: 5, cacheTokens: undefined });
  assert.deepEqual(slotsReport(slots), { running: 0, waiting: 0, cacheTokens: undefined });
  const [slot] = JSON.parse(slots) as readonly Record<string, unknown>[];
  const working = [
    slot,
    { ...slot, is_processing: true },
    { id: 2, is_processing: true, next_token: [{ n_decoded: 7 }] },
  ];
  assert.deepEqual(slotsReport(JSON.stringify(working)), { running: 1, waiting: 1, cacheTokens: undefined });
});

const readers = { vllmReport, sglangReport, llamaServerReport, slotsReport };

test('a page of another kind says nothing', () => {
  for (const [name, read] of Object.entries(readers))
    for (const text of ['', '{}', '[]', '[{}]', '<html>', 'null', '{"error":{"code":501}}', '# HELP a b\na 1\n'])
      assert.equal(read(text), undefined, `${name}: ${text}`);
  assert.equal(vllmReport(llamaPage), undefined);
  assert.equal(llamaServerReport(vllmPage), undefined);
});

test('figures that are no counts are none', () => {
  for (const value of ['NaN', '-1', '+Inf', '1e300', '', 'x', '1'.repeat(400)]) {
    const page = `llamacpp:requests_processing ${value}\nllamacpp:requests_deferred 0\n`;
    assert.equal(llamaServerReport(page), undefined, value);
    const size = `vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:cache_config_info{kv_cache_size_tokens="${value}",num_gpu_blocks="${value}",block_size="${value}"} 1`;
    assert.equal(vllmReport(size)?.cacheTokens, undefined, value);
  }
});

test('whatever a page says, what is read of it is within bounds', () => {
  const names = ['vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:cache_config_info'];
  names.push('sglang:num_running_reqs', 'sglang:num_queue_reqs', 'sglang:max_total_num_tokens');
  names.push('llamacpp:requests_processing', 'llamacpp:requests_deferred');
  const labels = fc.constantFrom(
    '',
    '{engine="0"}',
    '{a="}"}',
    '{dp_rank="1",block_size="16",num_gpu_blocks="1e9"}',
    '{',
  );
  const value = fc.oneof(fc.double().map(String), fc.nat(9).map(String), fc.constant('0x10'), fc.string());
  const line = fc
    .tuple(fc.constantFrom(...names), labels, value)
    .map(([name, label, text]) => `${name}${label} ${text}`);
  const page = fc.array(fc.oneof(line, fc.string()), { maxLength: 40 }).map((lines) => lines.join('\n'));
  fc.assert(
    fc.property(page, (text) => {
      for (const read of Object.values(readers)) {
        const report = read(text);
        if (report === undefined) continue;
        for (const count of [report.running, report.waiting]) assert.ok(count >= 0 && count <= 1e6, String(count));
        assert.ok(report.cacheTokens === undefined || (report.cacheTokens >= 0 && report.cacheTokens <= 1e12));
      }
    }),
  );
});

test('of too many lines the first count, and a line without an end has no value', () => {
  const running = 'vllm:num_requests_running{engine="0"} 1\n'.repeat(60_000);
  const endless = `vllm:cache_config_info{${'a="\\'.repeat(500_000)}`;
  const page = `${running}vllm:num_requests_waiting 0\n${endless}`;
  assert.deepEqual(vllmReport(page), { running: 4_096, waiting: 0, cacheTokens: undefined });
});
