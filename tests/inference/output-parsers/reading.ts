import assert from 'node:assert/strict';
import type { CallRules, OfferedTool } from '../../../src/inference/output-parsers/calls.ts';
import type { ParsedEvent } from '../../../src/inference/output-parsers/parsed-event.ts';
import { OutputParser, type OutputParserOptions } from '../../../src/inference/output-parsers/output-parser.ts';
import { formatOf, type FormatName } from './templates.ts';

export interface ReadingOptions {
  readonly format?: FormatName;
  /** `undefined`: no tools were offered. */
  readonly tools?: Readonly<Record<string, unknown>> | undefined;
  readonly callsMax?: number;
  readonly bound?: CallRules['bound'];
  readonly thinking?: OutputParserOptions['shape']['thinking'];
  readonly startsInThought?: boolean;
}

export const weatherTools = {
  get_weather: {
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer' }, tags: { type: 'array' } },
  },
  now: { type: 'object' },
};

export function newReader(options: ReadingOptions = {}): OutputParser {
  const { format = 'hermes', callsMax = Infinity, startsInThought = false, bound = 'nothing' } = options;
  const tools = 'tools' in options ? options.tools : weatherTools;
  return new OutputParser({
    shape: {
      thinking: options.thinking ?? (format === 'harmony' ? { type: 'channels' } : { type: 'none' }),
      calls: formatOf(format),
    },
    startsInThought,
    calls: tools && {
      callsMax,
      bound,
      tools: new Map(Object.entries(tools).map(([name, parameters]): [string, OfferedTool] => [name, { parameters }])),
    },
  });
}

/** The events of a text that comes in pieces; neighbours of one kind joined. */
export function read(pieces: Iterable<string>, options: ReadingOptions = {}): ParsedEvent[] {
  const reader = newReader(options);
  const events: ParsedEvent[] = [];
  for (const piece of pieces) events.push(...reader.push(piece));
  events.push(...reader.end());
  return joined(events);
}

export function joined(events: readonly ParsedEvent[]): ParsedEvent[] {
  const all: ParsedEvent[] = [];
  for (const event of events) {
    const last = all.at(-1);
    if (last?.type === event.type && event.type !== 'tool-call' && last.type !== 'tool-call')
      all[all.length - 1] = { ...last, text: last.text + event.text };
    else all.push(event);
  }
  return all;
}

/** The events of a text, after it was checked that they are the same for every cut in two, and character by character. */
export function readEveryCut(text: string, options: ReadingOptions = {}): ParsedEvent[] {
  const whole = read([text], options);
  assert.deepEqual(read(text.split(''), options), whole, 'character by character');
  for (let cut = 1; cut < text.length; cut++) {
    assert.deepEqual(read([text.slice(0, cut), text.slice(cut)], options), whole, `cut at ${cut}`);
  }
  return whole;
}

/** Events in one line each: `text …`, `reasoning …`, `name {arguments}`. */
export function shown(events: readonly ParsedEvent[]): string[] {
  const lines: string[] = [];
  for (const event of events) {
    if (event.type === 'tool-call') lines.push(`${event.name} `);
    else if (event.type === 'tool-arguments') lines[lines.length - 1] += event.text;
    else lines.push(`${event.type}: ${event.text}`);
  }
  return lines;
}
