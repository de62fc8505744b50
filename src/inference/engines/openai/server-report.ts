/**
 * Reads what kinds of servers report about their load and prompt cache. Texts are hostile: their length is bounded where they are read, and
 * a figure that is not a count is ignored.
 */
import type { ServerReport } from '../../../generation/server-report.ts';

/** One of the paths, next to the API's version, where a kind of server may report, and how to read it. `undefined`: not such a page. */
export interface ReportPage {
  readonly path: string;
  readonly read: (text: string) => ServerReport | undefined;
}

/** Larger counts are implausible. */
const countMax = 1e6;
/** More than any server has memory for. */
const cacheTokensMax = 1e12;
/** A server has one line for each of its engines, ranks and priorities. */
const samplesMax = 4_096;

/**
 * Reads vLLM's metrics (v1/metrics/loggers.py, 0.11 to 0.32): one line for each of its engines. `kv_cache_size_tokens` is per engine, the
 * number of blocks is the total. If the cache is offloaded, or shared with other servers, it holds more than that, and nothing says how
 * much.
 */
export function vllmReport(text: string): ServerReport | undefined {
  const running = sumOf(samplesOf(text, 'vllm:num_requests_running'));
  const waiting = sumOf(samplesOf(text, 'vllm:num_requests_waiting'));
  if (running === undefined || waiting === undefined) return undefined;
  return { running, waiting, cacheTokens: vllmCacheTokens(text) };
}

function vllmCacheTokens(text: string): number | undefined {
  const configs = samplesOf(text, 'vllm:cache_config_info').map(({ labels }) => labels);
  const [first] = configs;
  if (first === undefined) return undefined;
  if (first['enable_prefix_caching'] === 'False') return 0;
  const isElsewhereToo =
    (first['kv_offloading_size'] ?? 'None') !== 'None' ||
    samplesOf(text, 'vllm:external_prefix_cache_queries_total').some(({ value }) => value > 0);
  if (isElsewhereToo) return undefined;
  const [ofOne, blocks, blockTokens] = ['kv_cache_size_tokens', 'num_gpu_blocks', 'block_size'].map(
    (name) => tokensOf(Number(first[name])) ?? 0,
  ) as [number, number, number];
  return tokensOf(ofOne > 0 ? ofOne * configs.length : blocks * blockTokens);
}

/**
 * Reads SGLang's metrics (srt/observability/metrics_collector.py): the ranks of one replica report the same, and with priorities there is a
 * line for the total besides one for each. If it has a second cache in the host's memory, that also contains all of the first.
 */
export function sglangReport(text: string): ServerReport | undefined {
  const running = sumOfReplicas(samplesOf(text, 'sglang:num_running_reqs'));
  const waiting = sumOfReplicas(samplesOf(text, 'sglang:num_queue_reqs'));
  if (running === undefined || waiting === undefined) return undefined;
  const held = ['sglang:max_total_num_tokens', 'sglang:hicache_host_total_tokens'].map(
    (name) => sumOfReplicas(samplesOf(text, name), cacheTokensMax) ?? 0,
  );
  return { running, waiting, cacheTokens: tokensOf(Math.max(...held)) };
}

/**
 * Reads llama-server's metrics with `--metrics` (tools/server/server-task.cpp). What leaves its slots goes to a cache in the host's memory,
 * up to 8 GiB (`--cache-ram`), and nothing says how many tokens that is.
 */
export function llamaServerReport(text: string): ServerReport | undefined {
  const running = sumOf(samplesOf(text, 'llamacpp:requests_processing'));
  const waiting = sumOf(samplesOf(text, 'llamacpp:requests_deferred'));
  return running === undefined || waiting === undefined ? undefined : { running, waiting, cacheTokens: undefined };
}

/**
 * Reads llama-server's slots, which it reports without `--metrics`. Requests without a slot are not reported; a slot that has not written
 * anything is reading a prompt.
 */
export function slotsReport(text: string): ServerReport | undefined {
  const slots = parsed(text);
  if (!Array.isArray(slots) || slots.length === 0 || slots.length > samplesMax || !slots.every(isSlot))
    return undefined;
  const working = slots.filter(({ is_processing: isProcessing }) => isProcessing);
  const reading = working.filter(({ next_token: next }) => decodedOf(next) === 0);
  return { running: working.length - reading.length, waiting: reading.length, cacheTokens: undefined };
}

interface Slot {
  readonly is_processing: boolean;
  readonly next_token?: unknown;
}

const isSlot = (slot: unknown): slot is Slot =>
  typeof slot === 'object' && slot !== null && 'is_processing' in slot && typeof slot.is_processing === 'boolean';

/**
 * Returns the slot's number of written tokens. Older versions have one object instead of a list of one. 1 if unknown, so that the slot does
 * not count as reading.
 */
function decodedOf(next: unknown): unknown {
  const one: unknown = Array.isArray(next) ? next[0] : next;
  return typeof one === 'object' && one !== null && 'n_decoded' in one ? one.n_decoded : 1;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A line of a page in Prometheus' text format. */
interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Returns the samples of one name, without parsing the other lines: most of a page are histograms. */
function samplesOf(text: string, name: string): readonly Sample[] {
  const samples: Sample[] = [];
  for (let at = text.indexOf(name); at !== -1 && samples.length < samplesMax; at = text.indexOf(name, at + 1)) {
    const after = text[at + name.length];
    if ((at > 0 && text[at - 1] !== '\n') || (after !== '{' && after !== ' ')) continue;
    const end = text.indexOf('\n', at);
    samples.push(sampleIn(text.slice(at + name.length, end === -1 ? undefined : end)));
  }
  return samples;
}

function sampleIn(line: string): Sample {
  const labels: Record<string, string> = Object.create(null) as Record<string, string>;
  let at = 0;
  if (line.startsWith('{')) {
    // Sticky, so that it ends at the first thing that is not a label, however long the line.
    const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)",?/y;
    label.lastIndex = at = 1;
    for (let found = label.exec(line); found !== null; found = label.exec(line)) {
      labels[found[1]!] = found[2]!;
      at = label.lastIndex;
    }
    if (line[at++] !== '}') return { labels, value: NaN };
  }
  // A timestamp may follow the value.
  const [value = ''] = line.slice(at).trim().split(' ', 1);
  return { labels, value: value === '' ? NaN : Number(value) };
}

/** Sums the samples; `undefined` if there are none, or one is not a count. */
function sumOf(samples: readonly Sample[], max = countMax): number | undefined {
  const sum = samples.reduce((all, { value }) => all + (value >= 0 ? value : NaN), 0);
  return samples.length > 0 && sum <= max ? sum : undefined;
}

/** Sums the replicas, taking the highest value that any rank of each reports. */
function sumOfReplicas(samples: readonly Sample[], max = countMax): number | undefined {
  const byReplica = new Map<string, Sample>();
  for (const sample of samples) {
    const replica = sample.labels['dp_rank'] ?? '';
    const most = byReplica.get(replica);
    if (most === undefined || !(sample.value <= most.value)) byReplica.set(replica, sample);
  }
  return sumOf([...byReplica.values()], max);
}

const tokensOf = (tokens: number): number | undefined =>
  tokens > 0 && tokens <= cacheTokensMax ? Math.floor(tokens) : undefined;
