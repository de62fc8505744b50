import { idleLoad } from '../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../src/inference/routing/fleet.ts';
import { mulberry32 } from '../../tests/support/random.ts';
import { median } from '../table.ts';

const backends = 1_000;
const applications = 200;
const rounds = 30;
const requestsPerRound = 2_000;

/** What it costs to place a request of 20 blocks among 1,000 backends, half of whose beginning every backend has. */
export function measureCost(): string {
  const random = mulberry32(1);
  const fleet = new Fleet(Array.from({ length: backends }, () => idleLoad({ concurrencyMax: 64 })));
  const tokens = Array.from({ length: 20 }, (_, index) => 512 * (index + 1));
  const requests = Array.from({ length: requestsPerRound }, (_, request) => {
    const application = Math.floor(random() * applications);
    // The first ten blocks are those of everybody, the next five of an application, the last of a conversation.
    const hashes = tokens.map((_, index) =>
      index < 10 ? index : index < 15 ? 1_000 + application * 5 + index : 100_000 + request * 20 + index,
    );
    return { promptTokens: 10_300, prefixes: () => ({ hashes, tokens }) };
  });
  const able = (): boolean => true;
  const samplesUs: number[] = [];
  let nowMs = 0;
  for (let round = -rounds; round < rounds; round++) {
    const before = process.cpuUsage();
    for (const request of requests) {
      const placement = fleet.place(request, able, nowMs++)!;
      placement.begun(nowMs + 100);
      placement.end(nowMs + 100);
    }
    const { user, system } = process.cpuUsage(before);
    if (round >= 0) samplesUs.push((user + system) / requests.length);
  }
  const sorted = samplesUs.toSorted((a, b) => a - b);
  return `place among ${backends} backends: median ${median(sorted).toFixed(2)} µs of processor time, ${sorted[0]!.toFixed(2)} to ${sorted.at(-1)!.toFixed(2)}`;
}
