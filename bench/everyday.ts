import { statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { defaultModels } from '../src/config/defaults.ts';
import { readEnvironment } from '../src/config/environment.ts';
import type { EngineRequest, Message } from '../src/generation/request.ts';
import { samplingDefaultsIn, withSamplingDefaults } from '../src/generation/sampling-defaults.ts';
import { createLlamaEngine, type LlamaEngine } from '../src/inference/engines/llama/engine.ts';
import { MemoryBudget } from '../src/inference/engines/llama/memory-budget.ts';
import {
  everydayFaults,
  everydayPrompts,
  everydayTokensMax,
  faultsOf,
  type EverydayPrompt,
  type Fault,
} from '../tests/support/everyday-prompts.ts';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { revision } from './machine.ts';
import { Problem } from './problem.ts';
import { writeSection } from './results.ts';
import { root } from '../tests/support/repository.ts';

/**
 * `node scripts/run.mjs bench/everyday.ts`: how many of 60 everyday prompts a model answers sensibly, with neutral sampling and with
 * defaults; see bench/README.md.
 */

const usage = `node scripts/run.mjs bench/everyday.ts [options]

  --model FILE      a GGUF (default: the default model in the model folder)
  --defaults JSON   defaults in the form of the configuration, as often as there are; without it neutral ones, and those that the
                    default model ships with
  --seeds N         answers to each prompt (default 2)
  --show            prints each answer that has a fault, and why
  --write           puts the table into bench/results.md
`;

/** `defaults` of a model in the configuration. */
type Defaults = Readonly<Record<string, string | number>>;

interface Result {
  readonly defaults: Defaults;
  readonly answers: number;
  readonly faultless: number;
  readonly tokens: number;
  readonly faults: Readonly<Record<Fault, number>>;
}

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const options = readOptions(args);
  if (options.isHelp) return say(usage);
  const engine = createLlamaEngine({
    name: 'bench',
    modelFile: Promise.resolve(options.modelFile),
    contextLength: 1024,
    slots: 4,
    threads: availableParallelism(),
    queueLimit: everydayPrompts.length * options.seeds,
    firstTokenTimeoutMs: 3_600_000,
    idleTimeoutMs: 3_600_000,
    defaultSystem: 'none',
    memory: new MemoryBudget({ cacheBytesMax: Number.MAX_SAFE_INTEGER, models: 1 }),
    log: () => {},
  });
  await engine.ready;
  const results: Result[] = [];
  for (const defaults of options.candidates) {
    const result = await measure(engine, defaults, options.seeds, options.shows);
    results.push(result);
    say(rowOf(result));
  }
  await engine.close();
  const table = [
    `| defaults | faultless of ${results[0]?.answers ?? 0} | ${everydayFaults.join(' | ')} | tokens each |`,
    `|-|-:|${everydayFaults.map(() => '-:|').join('')}-:|`,
    ...results.map(rowOf),
  ].join('\n');
  say(`\n${table}`);
  if (!options.writes) return;
  const title = `${new Date().toISOString().slice(0, 10)}, ${revision(root)}, \`node scripts/run.mjs bench/everyday.ts\`, ${basename(options.modelFile)}`;
  writeSection(join(root, 'bench/results.md'), title, table);
}

async function measure(engine: LlamaEngine, defaults: Defaults, seeds: number, shows: boolean): Promise<Result> {
  const faults = Object.fromEntries(everydayFaults.map((fault) => [fault, 0])) as Record<Fault, number>;
  const sum = { answers: 0, faultless: 0, tokens: 0 };
  const one = async (prompt: EverydayPrompt, seed: number): Promise<void> => {
    const { text, finish, tokens } = await answer(engine, requestOf(prompt, defaults, seed));
    const found = faultsOf(prompt, text, finish);
    sum.answers++;
    sum.tokens += tokens;
    if (found.length === 0) sum.faultless++;
    else if (shows) say(`${found.join('+')} · ${prompt.prompt} · ${text.slice(0, 200).replaceAll('\n', '⏎')}`);
    for (const fault of found) faults[fault]++;
  };
  const seedList = Array.from({ length: seeds }, (_, index) => index + 1);
  await Promise.all(seedList.flatMap((seed) => everydayPrompts.map((prompt) => one(prompt, seed))));
  return { defaults, ...sum, faults };
}

function requestOf({ prompt }: EverydayPrompt, { system, ...fields }: Defaults, seed: number): EngineRequest {
  const text = (content: string | number) => [{ type: 'text' as const, text: String(content) }];
  const messages: readonly Message[] = [
    ...(system === undefined ? [] : [{ role: 'system' as const, content: text(system) }]),
    { role: 'user', content: text(prompt) },
  ];
  const open = {
    ...{ temperature: undefined, topP: undefined, topK: undefined, minP: undefined },
    ...{ presencePenalty: undefined, frequencyPenalty: undefined, repetitionPenalty: undefined, seed },
  };
  return {
    id: '0'.repeat(32),
    prompt: { type: 'messages', messages },
    choices: 1,
    maxTokens: everydayTokensMax,
    sampling: withSamplingDefaults(
      open,
      samplingDefaultsIn((name) => fields[name]),
    ),
    stop: [],
    tools: [],
    toolChoice: { type: 'none' },
    parallelToolCalls: true,
    constraint: undefined,
    effort: 'none',
    reasoningForm: 'separate',
    reasoningRoomTokens: 0,
    logprobs: undefined,
    logitBias: undefined,
    cacheScope: 'bench',
    retain: true,
  };
}

async function answer(engine: LlamaEngine, request: EngineRequest) {
  const whole = { text: '', finish: undefined as string | undefined, tokens: 0 };
  await engine.generate(request, new AbortController().signal, (events) => {
    for (const event of events) {
      if (event.type === 'text') whole.text += event.text;
      else if (event.type === 'finish') whole.finish = event.reason;
      else if (event.type === 'usage') whole.tokens = event.usage.completionTokens ?? 0;
    }
    return true;
  });
  return whole;
}

function rowOf({ defaults, answers, faultless, tokens, faults }: Result): string {
  const written = Object.entries(defaults).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  const name = written.length === 0 ? 'neutral' : `\`${written.join(', ')}\``;
  const counts = everydayFaults.map((fault) => faults[fault]).join(' | ');
  return `| ${name} | ${faultless} | ${counts} | ${Math.round(tokens / answers)} |`;
}

function readOptions(args: readonly string[]) {
  const { values } = parsed(args);
  const seeds = Number(values.seeds);
  if (!Number.isInteger(seeds) || seeds < 1 || seeds > 100)
    throw new UsageError(`--seeds must be a number from 1 to 100, not '${values.seeds}'`);
  const file = values.model ?? join(readEnvironment().modelDirectory, 'SmolLM2-135M-Instruct.Q4_1.gguf');
  if (!values.help && statSync(file, { throwIfNoEntry: false })?.isFile() !== true)
    throw new Problem(`${file} is not there.`, 'npx tokenhouse models pull, or name another with --model');
  const candidates: readonly Defaults[] = values.defaults?.map(candidate) ?? [{}, defaultModels[0].defaults];
  return { modelFile: file, seeds, candidates, shows: values.show, writes: values.write, isHelp: values.help };
}

function candidate(text: string): Defaults {
  try {
    return JSON.parse(text) as Defaults;
  } catch (error) {
    throw new UsageError(`--defaults takes an object in JSON, not '${text}'`, { cause: error });
  }
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        model: { type: 'string' },
        defaults: { type: 'string', multiple: true },
        seeds: { type: 'string', default: '2' },
        show: { type: 'boolean', default: false },
        write: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}
