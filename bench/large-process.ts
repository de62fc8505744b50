/**
 * Somebody with large texts, in a process of their own: what `large.ts` starts. Reads a `LargeJob` from its first message, sends
 * one text after the other, and answers the second message with a `LargeReading`.
 */
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

export interface LargeJob {
  readonly port: number;
  readonly key: string;
  readonly model: string;
  /** Of the text of one request. */
  readonly bytes: number;
  readonly atOnce: number;
}

export interface LargeReading {
  readonly answered: number;
  /** 429 and 503. */
  readonly refused: number;
  /** Whatever else came back; should be 0. */
  readonly failed: number;
}

const [job] = (await once(process, 'message')) as [LargeJob];
const body = bodyOf(job);
const agent = new Agent({ keepAlive: true, maxSockets: job.atOnce });
const counts = { answered: 0, refused: 0, failed: 0 };
let isOver = false;
process.send!('ready');
const senders = Array.from({ length: job.atOnce }, send);
await once(process, 'message');
isOver = true;
const reading: LargeReading = { ...counts };
process.send!(reading);
agent.destroy();
await Promise.all(senders);
process.disconnect();

async function send(): Promise<void> {
  while (!isOver) {
    const { status, retryAfterSeconds } = await post();
    if (isOver) return;
    if (status === 200) counts.answered++;
    else if (status === 429 || status === 503) counts.refused++;
    else counts.failed++;
    if (status !== 200) await sleep(1000 * retryAfterSeconds);
  }
}

function post(): Promise<{ readonly status: number | undefined; readonly retryAfterSeconds: number }> {
  return new Promise((resolve) => {
    const headers = {
      authorization: `Bearer ${job.key}`,
      'content-type': 'application/json',
      'content-length': body.length,
    };
    const options = { host: '127.0.0.1', port: job.port, method: 'POST', path: '/v1/chat/completions', headers, agent };
    const sent = request(options, (answer) => {
      const retryAfterSeconds = Number(answer.headers['retry-after'] ?? 1);
      let text = '';
      answer.setEncoding('utf8').on('data', (piece: string) => (text = (text + piece).slice(0, 500)));
      answer.once('close', () => {
        const status = answer.statusCode ?? 0;
        if (![200, 429, 503].includes(status)) process.stderr.write(`a large text: ${status} ${text}\n`);
        resolve({ status, retryAfterSeconds });
      });
    });
    sent.once('error', () => resolve({ status: undefined, retryAfterSeconds: 1 }));
    sent.end(body);
  });
}

/** Text with what JSON has to escape, as documents have. */
function bodyOf({ model, bytes }: LargeJob): Buffer {
  const line = 'The "measured" wait depends on many details of the runtime.\n';
  const content = `[[u:s:8:0]] ${line.repeat(Math.ceil(bytes / JSON.stringify(line).length))}`;
  return Buffer.from(JSON.stringify({ model, messages: [{ role: 'user', content }] }));
}
