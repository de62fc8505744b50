import { mkdtempSync, rmSync, statSync } from 'node:fs';
import os, { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { readEnvironment } from '../src/config/environment.ts';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { constraintFigures, constraintTable } from './embedded-constraints.ts';
import { embedded, llamaServer, type Answer, type Contender, type Settings } from './embedded-contenders.ts';
import { machineFacts, revision } from './machine.ts';
import { Problem } from './problem.ts';
import { allowedCores, coreBusySeconds, processorSeconds, raisePriority } from './processes.ts';
import { writeSection } from './results.ts';
import { median } from './table.ts';
import { root } from '../tests/support/repository.ts';

/**
 * `npm run bench embedded`: the embedded engine beside llama-server on the same file in one run; see bench/README.md. Exit
 * codes: 1 an answer was too short, 64 wrong usage, 69 something that it needs is missing.
 */

const usage = `npm run bench embedded -- [options]

  --model FILE      a GGUF (default: the default model in the model folder)
  --rounds N        rounds, interleaved (default 5)
  --widths LIST     streams at once, separated by commas (default 1,2,4,8)
  --tokens N        tokens of each answer whose writing is timed (default 128)
  --prompt N        tokens of the long prompt (default 1000)
  --decode-threads N   of both (default 1)
  --prefill-threads N  of both (default: all cores)
  --only NAMES      of decode, threads, short, long, separated by commas; or constraints alone, without llama-server
  --schemas FILE    for constraints: a line of JSON for each schema, {"name", "schema"}
  --count N         for constraints: that many of them, evenly spread (default 100)
  --quick           one round, widths 1 and 4, short answers: shows that everything works
  --write           put the table into bench/results.md
`;

const aim = 0.95;
/** Of a token under a schema to one without. */
const constraintAim = 1.3;

/** Writing with the same threads; writing beside a llama-server that uses all; the first token of short and long prompts. */
const kinds = ['decode', 'threads', 'short', 'long'] as const;

interface Row {
  readonly title: string;
  readonly kind: Measure['kind'];
  readonly value: (figures: Figures) => number;
  readonly isTime: boolean;
}

const rows: readonly Row[] = [
  { title: 'tokens/s, same threads', kind: 'decode', value: (figures) => figures.tokensPerSecond, isTime: false },
  {
    title: 'tokens/s, llama-server with all threads',
    kind: 'threads',
    value: (figures) => figures.tokensPerSecond,
    isTime: false,
  },
  {
    title: 'first token after a short prompt, ms',
    kind: 'short',
    value: (figures) => figures.firstTokenMs,
    isTime: true,
  },
  { title: 'first token after LONG tokens, ms', kind: 'long', value: (figures) => figures.firstTokenMs, isTime: true },
  {
    title: 'the last of these first tokens, ms',
    kind: 'long',
    value: (figures) => figures.lastFirstTokenMs,
    isTime: true,
  },
];

const idleWaitMs = 200;
const idleWaitsMax = 20;
/** Of one processor. */
const idleShare = 0.1;

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const options = readOptions(args);
  if (options.isHelp) return say(usage);
  if (options.constraints !== undefined) return measureConstraints(options, options.constraints, args);
  const loadBefore = os.loadavg()[0] ?? 0;
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(130));
  // Both inherit it.
  const isRaised = raisePriority();
  const { settings } = options;
  const server = await llamaServer(settings, root, folder);
  // It steps several answers with the threads for prompts (llama.cpp takes those for more than one token), so beside an
  // engine that decodes with one thread there has to be one that has no more for anything.
  const serverAsNarrow = await llamaServer({ ...settings, prefillThreads: settings.decodeThreads }, root, folder);
  const engine = await embedded(settings, server.endTokens);
  const prompts = await promptsOf(options, (text) => server.tokenize(text));
  const measures = measuresOf(options);

  for (const contender of [engine, server, serverAsNarrow]) await contender.answer(prompts.short(0), 16);
  const rounds: Round[] = [];
  for (let round = 0; round < options.rounds; round++) {
    say(`round ${round + 1} of ${options.rounds}`);
    for (const [place, measure] of measures.entries()) {
      const contenders: readonly Contender[] = [engine, measure.kind === 'decode' ? serverAsNarrow : server];
      // Who goes first changes from round to round and from measure to measure.
      const order = (round + place) % 2 === 0 ? contenders : contenders.toReversed();
      for (const contender of order) {
        await untilIdle();
        const figures = await play(measure, contender, prompts);
        rounds.push({ measure: measure.name, contender: contender.name, ...figures });
        say(`  ${measure.name}, ${contender.name}: ${wordsOf(measure, figures)}`);
      }
    }
  }
  await engine.close();
  await Promise.all([server.close(), serverAsNarrow.close()]);
  report(options, args, rounds, [
    ...machineFacts({ root, dataFolder: folder, contenders: [], isRaised, isPinned: true }).slice(0, 2),
    isRaised ? 'both at a raised priority' : 'no right to raise priorities: other work counts into the figures',
    `${basename(settings.modelFile)}, ${Math.round(statSync(settings.modelFile).size / 1e6)} MB; ${settings.slots} slots of ${settings.contextLength} tokens; ${settings.decodeThreads} thread for decoding, ${settings.prefillThreads} for prompts`,
    `llama-server ${server.version}`,
    `load average before the run ${loadBefore.toFixed(2)}; other work took up to ${Math.round(100 * Math.max(...rounds.map(({ foreignShare }) => foreignShare)))} % of the machine`,
    `revision ${revision(root)}`,
  ]);
  const short = rounds.filter(({ isWhole }) => !isWhole);
  for (const { measure, contender } of short) say(`an answer of ${contender} in ${measure} was too short`);
  process.exit(short.length === 0 ? 0 : 1);
}

async function measureConstraints(
  { settings, rounds, tokens, writes }: Options,
  { schemaFile, count }: NonNullable<Options['constraints']>,
  args: readonly string[],
): Promise<void> {
  const { modelFile, decodeThreads: threads } = settings;
  const figures = await constraintFigures({ modelFile, schemaFile, count, tokens, threads, rounds }, say);
  const facts = `${basename(modelFile)}, ${threads} thread, ${tokens} tokens a schema, temperature 1; median of ${rounds} rounds, in turn with and without; load average ${(os.loadavg()[0] ?? 0).toFixed(2)}; revision ${revision(root)}`;
  const table = `${facts}\n\n${constraintTable(figures, constraintAim)}`;
  console.log(table);
  if (writes) writeResult(args, table);
}

interface Options {
  readonly settings: Settings;
  readonly rounds: number;
  readonly widths: readonly number[];
  readonly tokens: number;
  readonly promptTokens: number;
  readonly only: readonly string[];
  readonly constraints: { readonly schemaFile: string; readonly count: number } | undefined;
  readonly writes: boolean;
  readonly isHelp: boolean;
}

function readOptions(args: readonly string[]): Options {
  const { values } = parsed(args);
  const natural = (name: keyof typeof values, value: string | undefined, otherwise: number): number => {
    if (value === undefined) return otherwise;
    if (!/^[1-9]\d{0,5}$/.test(value)) throw new UsageError(`--${name} must be a number from 1 on, not '${value}'`);
    return Number(value);
  };
  const widths = (values.widths ?? (values.quick ? '1,4' : '1,2,4,8')).split(',').map((w) => natural('widths', w, 1));
  const tokens = natural('tokens', values.tokens, values.quick ? 32 : 128);
  const promptTokens = natural('prompt', values.prompt, 1000);
  const isConstraints = values.only === 'constraints';
  if (isConstraints && values.schemas === undefined && !values.help)
    throw new UsageError('--only constraints needs --schemas FILE');
  const only = isConstraints ? [] : (values.only?.split(',') ?? kinds);
  const unknown = only.filter((name) => !(kinds as readonly string[]).includes(name));
  if (unknown.length > 0) throw new UsageError(`--only knows ${kinds.join(', ')}, not ${unknown.join(', ')}`);
  return {
    settings: {
      modelFile: values.help ? '' : modelFile(values.model),
      slots: Math.max(...widths),
      contextLength: Math.ceil((Math.max(promptTokens, 256) + tokens + 64) / 256) * 256,
      decodeThreads: natural('decode-threads', values['decode-threads'], 1),
      prefillThreads: natural('prefill-threads', values['prefill-threads'], os.availableParallelism()),
    },
    rounds: natural('rounds', values.rounds, values.quick ? 1 : 5),
    widths,
    tokens,
    promptTokens,
    only,
    constraints: isConstraints
      ? { schemaFile: values.schemas ?? '', count: natural('count', values.count, values.quick ? 10 : 100) }
      : undefined,
    writes: values.write,
    isHelp: values.help,
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        model: { type: 'string' },
        rounds: { type: 'string' },
        widths: { type: 'string' },
        tokens: { type: 'string' },
        prompt: { type: 'string' },
        'decode-threads': { type: 'string' },
        'prefill-threads': { type: 'string' },
        only: { type: 'string' },
        schemas: { type: 'string' },
        count: { type: 'string' },
        quick: { type: 'boolean', default: false },
        write: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}

function modelFile(given: string | undefined): string {
  const file = given ?? join(readEnvironment().modelDirectory, 'SmolLM2-135M-Instruct.Q4_1.gguf');
  if (statSync(file, { throwIfNoEntry: false })?.isFile() === true) return file;
  throw new Problem(`${file} is not there.`, 'npx tokenhouse models pull, or name another with --model');
}

interface Prompts {
  /** Different for each number, from their first tokens on. */
  short(number: number): readonly number[];
  long(number: number): readonly number[];
}

/**
 * Counting is what every model goes on with at temperature 0 without repeating itself, so that the embedded engine's guard
 * against repetition stays out of it and all answers have their full length.
 */
async function promptsOf(
  { promptTokens }: Options,
  tokenize: (text: string) => Promise<readonly number[]>,
): Promise<Prompts> {
  const counts = await Promise.all(
    Array.from({ length: 16 }, (_, i) =>
      tokenize(
        Array.from({ length: 8 }, (_, k) => `${i * 40 + 20 + k}, `)
          .join('')
          .trim(),
      ),
    ),
  );
  const filler = await tokenize(
    'The quick brown fox jumps over the lazy dog while a small model writes plain words. '.repeat(
      1 + Math.ceil(promptTokens / 10),
    ),
  );
  const short = (number: number): readonly number[] => counts[number % counts.length] ?? [];
  return {
    short,
    long: (number) => {
      const head = short(number);
      const body = filler.slice(0, Math.max(0, promptTokens - 2 * head.length));
      return [...head, ...body, ...head].slice(-promptTokens);
    },
  };
}

interface Measure {
  readonly name: string;
  readonly kind: (typeof kinds)[number];
  readonly width: number;
  readonly tokens: number;
}

function measuresOf({ widths, tokens, only }: Options): readonly Measure[] {
  const chosen = kinds.filter((kind) => only.includes(kind));
  return chosen.flatMap((kind) =>
    widths.map((width) => ({
      name: `${kind} ${width}`,
      kind,
      width,
      tokens: kind === 'decode' || kind === 'threads' ? tokens : 1,
    })),
  );
}

interface Figures {
  /** While all streams were being written. */
  readonly tokensPerSecond: number;
  /** Among the streams of one run: the median, and the slowest. */
  readonly firstTokenMs: number;
  readonly lastFirstTokenMs: number;
  /** Share of all cores that neither of the two nor this process used. */
  readonly foreignShare: number;
  readonly isWhole: boolean;
}

interface Round extends Figures {
  readonly measure: string;
  readonly contender: string;
}

/**
 * Threads of llama-server wait for its next step by spinning, for some 150 ms after an answer: they would take a processor from who comes
 * next.
 */
async function untilIdle(): Promise<void> {
  for (let waits = 0; waits < idleWaitsMax; waits++) {
    const before = processorSeconds(process.pid);
    await delay(idleWaitMs);
    if (processorSeconds(process.pid) - before <= (idleShare * idleWaitMs) / 1000) return;
  }
}

async function play(measure: Measure, contender: Contender, prompts: Prompts): Promise<Figures> {
  const { width, tokens, kind } = measure;
  const prompt = kind === 'long' ? prompts.long : prompts.short;
  const cores = allowedCores();
  const busySeconds = (): number => cores.reduce((sum, core) => sum + coreBusySeconds(core), 0);
  const before = { busy: busySeconds(), own: processorSeconds(process.pid), atMs: performance.now() };
  const startMs = performance.now();
  const answers = await Promise.all(Array.from({ length: width }, (_, i) => contender.answer(prompt(i), tokens)));
  const seconds = (performance.now() - before.atMs) / 1000;
  const foreign = busySeconds() - before.busy - (processorSeconds(process.pid) - before.own);
  const firsts = answers.map((answer) => firstAtMs(answer) - startMs).toSorted((a, b) => a - b);
  return {
    tokensPerSecond: tokensPerSecond(answers),
    firstTokenMs: median(firsts),
    lastFirstTokenMs: firsts.at(-1) ?? NaN,
    foreignShare: Math.max(0, foreign) / seconds / cores.length,
    isWhole: answers.every(({ arrivals }) => arrivals.at(-1)?.tokens === tokens),
  };
}

function firstAtMs({ arrivals }: Answer): number {
  return arrivals.find(({ tokens }) => tokens > 0)?.atMs ?? NaN;
}

/** From the last stream's first token to the first stream's last: before and after, fewer streams are being written. */
function tokensPerSecond(answers: readonly Answer[]): number {
  const fromMs = Math.max(...answers.map(firstAtMs));
  const toMs = Math.min(...answers.map(({ arrivals }) => arrivals.at(-1)?.atMs ?? NaN));
  const tokensAt = ({ arrivals }: Answer, atMs: number): number =>
    arrivals.findLast((arrival) => arrival.atMs <= atMs)?.tokens ?? 0;
  const tokens = answers.reduce((sum, answer) => sum + tokensAt(answer, toMs) - tokensAt(answer, fromMs), 0);
  return tokens / ((toMs - fromMs) / 1000);
}

function wordsOf({ tokens }: Measure, { tokensPerSecond, firstTokenMs, foreignShare }: Figures): string {
  const rate = tokens > 1 ? `${tokensPerSecond.toFixed(1)} tokens/s, ` : '';
  return `${rate}first token ${firstTokenMs.toFixed(0)} ms, others used ${(foreignShare * 100).toFixed(0)} %`;
}

function report(options: Options, args: readonly string[], rounds: readonly Round[], facts: readonly string[]): void {
  const below: string[] = [];
  const lines = rows
    .filter(({ kind }) => options.only.includes(kind))
    .flatMap(({ title, kind, value, isTime }) =>
      options.widths.map((width) => {
        const of = (contender: string): readonly number[] =>
          rounds
            .filter((round) => round.measure === `${kind} ${width}` && round.contender === contender)
            .map((round) => value(round));
        const [own, other] = [of('embedded'), of('llama-server')];
        // Ratios within the same round, so that more is better for the embedded engine.
        const ratios = own.map((figure, i) => (isTime ? (other[i] ?? NaN) / figure : figure / (other[i] ?? NaN)));
        const name = `${width} ${width === 1 ? 'stream' : 'streams'}: ${title.replace('LONG', String(options.promptTokens))}`;
        if (kind === 'decode' && median(ratios.toSorted((a, b) => a - b)) < aim) below.push(String(width));
        return `| ${name} | ${cell(own, isTime ? 0 : 1)} | ${cell(other, isTime ? 0 : 1)} | ${cell(ratios, 2)} |`;
      }),
    );
  const verdict = options.only.includes('decode')
    ? below.length === 0
      ? [`- the aim, ${aim} of llama-server's tokens/s with the same threads at every width, is reached`]
      : [
          `- the aim, ${aim} of llama-server's tokens/s with the same threads, is missed at ${below.join(', ')} of ${options.widths.join(', ')} streams`,
        ]
    : [];
  const text = [
    `| | embedded | llama-server | ratio (more is better) |`,
    `|-|-:|-:|-:|`,
    ...lines,
    '',
    ...verdict,
    `- ${options.rounds} rounds; median (least–most); ratios are those of the same round`,
    ...facts.map((fact) => `- ${fact}`),
  ].join('\n');
  process.stdout.write(`${text}\n`);
  if (options.writes) writeResult(args, text);
}

function writeResult(args: readonly string[], text: string): void {
  const words = args.filter((word) => word !== '--write');
  const command = ['npm run bench embedded', ...(words.length > 0 ? ['--', ...words] : [])].join(' ');
  const file = join(root, 'bench', 'results.md');
  const title = `${new Date().toISOString().slice(0, 10)}, ${revision(root)}, \`${command}\``;
  writeSection(file, title, text);
  say(`written to ${file}: ${title}`);
}

function cell(values: readonly number[], digits: number): string {
  const known = values.filter((value) => Number.isFinite(value)).toSorted((a, b) => a - b);
  if (known.length === 0) return '–';
  const print = (value: number): string => value.toFixed(digits);
  const [least, most] = [print(known[0]!), print(known.at(-1)!)];
  return least === most ? least : `${print(median(known))} (${least}–${most})`;
}
