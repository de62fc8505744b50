import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Check } from 'typebox/schema';
import { readEnvironment } from '../src/config/environment.ts';
import { printGbnf } from '../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../src/inference/constraints/json-schema.ts';
import { inlineRefs } from '../src/inference/constraints/schema-refs.ts';
import { createLlamaEngine, type LlamaEngine } from '../src/inference/engines/llama/engine.ts';
import { ApiError } from '../src/platform/errors.ts';
import type { GenerationEvent } from '../src/generation/event.ts';
import type { EngineRequest } from '../src/generation/request.ts';
import { withoutDroppedKeywords } from '../src/inference/pipeline/dropped-keywords.ts';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { Problem } from './problem.ts';

/** What the embedded engine writes under real schemas, and whether it is valid in them; see bench/README.md. */
const usage = `node scripts/run.mjs bench/constrained.ts FILE [options]

  FILE           a line of JSON for each schema: {"name", "schema"}
  --count N      that many schemas, evenly spread over the file (default 100)
  --model FILE   a GGUF (default: the default model in the model folder)
  --slots N      answers at once (default 4)
  --quiet        the figures only, not each schema that was refused and each answer that was cut or is not valid

It ends with 1 when an answer that finished does not parse or is not valid.
`;

interface Case {
  readonly name: string;
  readonly schema: unknown;
}

const maxTokens = 400;
const seed = 1;
/** The machine may do other things as well. */
const patienceMs = 900_000;

/** What became of an answer, in the order of the table. */
const outcomes = {
  valid: 'finished, valid',
  dropped: 'finished, valid but for keywords that are dropped',
  unjudged: 'finished, and the validator cannot read the schema',
  invalid: 'finished, NOT VALID',
  unparsed: 'finished, DOES NOT PARSE',
  length: 'cut off by max_tokens',
  repetition: 'cut off because it repeated itself',
  failed: 'FAILED',
} as const;
type Outcome = keyof typeof outcomes;

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const { file, count, modelFile, slots, isQuiet } = readOptions(args);
  const lines = readFileSync(file, 'utf8').split('\n');
  const all = lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Case);
  const chosen = Array.from({ length: Math.min(count, all.length) }, (_, index) => {
    return all[Math.floor((index * all.length) / Math.min(count, all.length))]!;
  });
  const refused: string[] = [];
  const compiled = chosen.flatMap(({ name, schema }) => {
    try {
      return [{ name, schema, gbnf: printGbnf(jsonSchemaGrammar(schema, 'schema')) }];
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      refused.push(`refused: ${name}: ${error.code}: ${error.message}`);
      return [];
    }
  });
  const engine = createLlamaEngine({
    name: 'bench',
    modelFile: Promise.resolve(modelFile),
    slots,
    contextLength: 1024,
    defaultSystem: 'none',
    firstTokenTimeoutMs: patienceMs,
    idleTimeoutMs: patienceMs,
    silenceMs: patienceMs,
    log: () => {},
  });
  await engine.ready;
  const rest = new Map<Outcome, string[]>();
  const begun = performance.now();
  let tokens = 0;
  let done = 0;
  const waiting = compiled.entries();
  const work = async (): Promise<void> => {
    for (const [index, each] of waiting) {
      const answer = await write(engine, index, each.gbnf, each.schema);
      const { outcome, why } = judge(answer, each.schema);
      tokens += answer.tokens;
      rest.set(outcome, [
        ...(rest.get(outcome) ?? []),
        `${outcome}: ${each.name}: ${why === undefined ? '' : `${why}: `}${answer.text}\n    ${JSON.stringify(each.schema)}`,
      ]);
      if (++done % 10 === 0)
        say(`${done} of ${compiled.length} after ${Math.round((performance.now() - begun) / 1000)} s`);
    }
  };
  // All take from one list.
  await Promise.all(Array.from({ length: slots }, work));
  await engine.close();
  const countOf = (outcome: Outcome): number => rest.get(outcome)?.length ?? 0;
  if (!isQuiet) {
    const shown = (Object.keys(outcomes) as Outcome[]).filter((outcome) => outcome !== 'valid');
    console.log([...refused, ...shown.flatMap((outcome) => rest.get(outcome) ?? []), ''].join('\n'));
  }
  const seconds = Math.round((performance.now() - begun) / 1000);
  console.log(
    `${chosen.length} schemas, ${tokens} tokens in ${seconds} s; temperature 1, seed ${seed}, max_tokens ${maxTokens}`,
  );
  const row = (what: string, figure: number): void => console.log(`${what.padEnd(52)}${String(figure).padStart(5)}`);
  row('refused', refused.length);
  for (const [outcome, what] of Object.entries(outcomes)) row(what, countOf(outcome as Outcome));
  if (countOf('invalid') + countOf('unparsed') + countOf('failed') > 0) process.exitCode = 1;
}

interface Answer {
  readonly text: string;
  readonly tokens: number;
  readonly finish: Extract<GenerationEvent, { readonly type: 'finish' }> | undefined;
  readonly failure: string | undefined;
}

async function write(engine: LlamaEngine, index: number, gbnf: string, schema: unknown): Promise<Answer> {
  const events: GenerationEvent[] = [];
  let failure: string | undefined;
  try {
    await engine.generate(
      requestFor(index, gbnf, schema),
      new AbortController().signal,
      (batch) => events.push(...batch) > 0,
    );
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    failure = `${error.code}: ${error.message}`;
  }
  return {
    text: events.map((event) => (event.type === 'text' ? event.text : '')).join(''),
    tokens: events.flatMap((event) => (event.type === 'usage' ? [event.usage.completionTokens ?? 0] : [])).at(-1) ?? 0,
    finish: events.find((event) => event.type === 'finish'),
    failure,
  };
}

/** The whole schema as a prompt would mostly time how prompts are read; its own words are enough to begin with. */
function requestFor(index: number, gbnf: string, schema: unknown): EngineRequest {
  const { title, description } = (schema ?? {}) as { readonly title?: unknown; readonly description?: unknown };
  const about = [title, description]
    .filter((words) => typeof words === 'string')
    .join(': ')
    .slice(0, 300);
  const text = `Write one short example in JSON${about === '' ? '' : ` of: ${about}`}.`;
  return {
    id: String(index + 1).padStart(32, '0'),
    prompt: { type: 'messages', messages: [{ role: 'user', content: [{ type: 'text', text }] }] },
    choices: 1,
    maxTokens,
    sampling: {
      temperature: 1,
      topP: undefined,
      topK: undefined,
      minP: undefined,
      presencePenalty: undefined,
      frequencyPenalty: undefined,
      repetitionPenalty: undefined,
      seed,
    },
    stop: [],
    tools: [],
    toolChoice: { type: 'none' },
    parallelToolCalls: true,
    constraint: { source: { type: 'json-schema', schema, name: undefined }, gbnf },
    effort: 'none',
    reasoningForm: 'separate',
    reasoningRoomTokens: 0,
    logprobs: undefined,
    logitBias: undefined,
    cacheScope: 'bench',
    retain: false,
  };
}

function judge({ text, finish, failure }: Answer, schema: unknown): { outcome: Outcome; why?: string } {
  if (failure !== undefined || finish === undefined) return { outcome: 'failed', why: failure ?? 'it has no finish' };
  if (finish.reason === 'length') return { outcome: finish.cause === 'repetition' ? 'repetition' : 'length' };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { outcome: 'unparsed', why: String(error) };
  }
  try {
    if (isValid(schema, value)) return { outcome: 'valid' };
    // As in the service: the keywords are dropped where references lead to as well.
    const enforced = withoutDroppedKeywords(inlineRefs(schema, 'schema'));
    return { outcome: isValid(enforced, value) ? 'dropped' : 'invalid' };
  } catch (error) {
    return { outcome: 'unjudged', why: String(error) };
  }
}

function isValid(schema: unknown, value: unknown): boolean {
  return Check(schema as Parameters<typeof Check>[0], value);
}

function readOptions(args: readonly string[]) {
  const { values, positionals } = parsed(args);
  const [file] = positionals;
  if (file === undefined) throw new UsageError('Which file?');
  const model = values.model ?? join(readEnvironment().modelDirectory, 'SmolLM2-135M-Instruct.Q4_1.gguf');
  for (const [path, remedy] of [
    [file, 'name a file of schemas'],
    [model, 'npx tokenhouse models pull, or name another with --model'],
  ] as const)
    if (!existsSync(path)) throw new Problem(`${path} is not there.`, remedy);
  return {
    file,
    count: wholeNumber('--count', values.count),
    modelFile: model,
    slots: wholeNumber('--slots', values.slots),
    isQuiet: values.quiet,
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        count: { type: 'string', default: '100' },
        model: { type: 'string' },
        slots: { type: 'string', default: '4' },
        quiet: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    });
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new UsageError(`${name} takes a whole number from 1`);
  return value;
}
