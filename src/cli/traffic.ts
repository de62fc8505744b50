import { createWriteStream } from 'node:fs';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

import { OperationError } from '../accounts/operation.ts';
import { askService } from '../app/control/control-client.ts';
import type { ServiceAnswer, ServiceRequest, TrafficRequestKind } from '../app/control/service-requests.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { RecordedRequest } from '../inference/pipeline/traffic-recorder.ts';
import type { Context } from './context.ts';
import { traceOf } from './traffic-trace.ts';

async function ask<Kind extends TrafficRequestKind>(
  { config }: Context,
  request: ServiceRequest<Kind>,
): Promise<ServiceAnswer<Kind>> {
  const answer = await askService(controlSocketPath(config.storage.directory), request);
  if (answer === undefined) throw new OperationError('No service is running here. Start it: npm start');
  return answer;
}

const timeText = (ms: number): string => new Date(ms).toISOString();

export async function recordTraffic(
  context: Context,
  { minutes, model }: { readonly minutes: number; readonly model?: string },
): Promise<number> {
  const { untilMs } = await ask(context, {
    kind: 'record_traffic',
    minutes,
    ...(model === undefined ? {} : { model }),
  });
  context.print.result({ until: timeText(untilMs), model: model ?? null }, [
    `Recording ${model ?? 'all models'} until ${timeText(untilMs)}, in memory and without content.`,
    'Write what there is at any time: tokenhouse traffic export -o trace.jsonl',
  ]);
  return 0;
}

export async function forgetTraffic(context: Context): Promise<number> {
  await ask(context, { kind: 'forget_traffic' });
  context.print.result({ forgotten: true }, ['Nothing is recorded any more, and what was is forgotten.']);
  return 0;
}

interface Span {
  readonly model?: string;
  readonly from?: number;
  readonly to?: number;
}

/** Writes what was recorded in Mooncake's form. */
export async function exportTraffic(
  context: Context,
  { output, ...span }: Span & { readonly output?: string },
): Promise<number> {
  const { requests, isFull } = await recorded(context, span);
  if (requests.length === 0)
    throw new OperationError('No such traffic is recorded. Record some: tokenhouse traffic record --minutes 30');
  const lines = linesOf(requests);
  if (output === undefined) for (const line of lines) await context.print.raw(line);
  else await writeTo(resolve(context.around.directory, output), lines);
  const [first, last] = [requests[0]!.atMs, requests.at(-1)!.atMs].map(timeText);
  const said = `${requests.length} requests, from ${first} to ${last}${isFull ? '; later ones had no room' : ''}`;
  if (output !== undefined)
    context.print.result({ file: output, requests: requests.length, from: first, to: last, full: isFull }, [
      `${output}: ${said}`,
    ]);
  else context.print.say(said);
  return 0;
}

/** What all processes have recorded, in the order of their times. */
async function recorded(
  context: Context,
  { model, from = 0, to = Infinity }: Span,
): Promise<{ readonly requests: readonly RecordedRequest[]; readonly isFull: boolean }> {
  const found: RecordedRequest[] = [];
  let isFull = false;
  for (let index = 0, count = 1; index < count; index++)
    for (let next: number | null = 0; next !== null;) {
      const { processes, page }: ServiceAnswer<'recorded_traffic'> = await ask(context, {
        kind: 'recorded_traffic',
        process: index,
        from: next,
      });
      count = processes;
      isFull ||= page?.isFull === true;
      for (const request of page?.requests ?? [])
        if (request.atMs >= from && request.atMs < to && (model === undefined || request.model === model))
          found.push(request);
      next = page?.next ?? null;
    }
  return { requests: found.toSorted((a, b) => a.atMs - b.atMs), isFull };
}

function* linesOf(requests: readonly RecordedRequest[]): Generator<string> {
  for (const line of traceOf(requests)) yield `${JSON.stringify(line)}\n`;
}

/** Never over a file that is there. */
async function writeTo(path: string, lines: Iterable<string>): Promise<void> {
  try {
    await pipeline(Readable.from(lines), createWriteStream(path, { flags: 'wx' }));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new OperationError(`${path} is there already, and is not overwritten.`);
  }
}
