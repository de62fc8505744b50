import { readFileSync } from 'node:fs';
import { printGbnf } from '../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../src/inference/constraints/json-schema.ts';
import { openModel } from '../src/inference/engines/llama/bindings.ts';
import type { LlamaModel } from '../src/inference/engines/llama/llama-model.ts';
import { ChoiceSampler, samplingSettings } from '../src/inference/engines/llama/sampling.ts';
import { ApiError } from '../src/platform/errors.ts';
import { median } from './table.ts';

/** What a token costs under a schema, beside one without: the same model, prompt, seed and number of tokens, in turn. */

export interface ConstraintOptions {
  readonly modelFile: string;
  /** A line of JSON for each schema: {"name", "schema"}. */
  readonly schemaFile: string;
  /** That many schemas, evenly spread over the file. */
  readonly count: number;
  readonly tokens: number;
  readonly threads: number;
  readonly rounds: number;
}

export interface ConstraintFigures {
  readonly name: string;
  /** Processor time of a token under the schema and of one without, all threads: the median of the rounds. */
  readonly constrainedMs: number;
  readonly freeMs: number;
  readonly ratio: number;
  /** The slowest choice of a token under the schema, by the clock. */
  readonly slowestMs: number;
}

export async function constraintFigures(
  options: ConstraintOptions,
  say: (line: string) => void,
): Promise<readonly ConstraintFigures[]> {
  const schemas = compiledSchemas(options, say);
  const model = await openModel({
    modelFile: options.modelFile,
    contextLength: 512,
    slots: 1,
    batchTokens: 512,
    threadsMax: options.threads,
    gpu: false,
  });
  const all: ConstraintFigures[] = [];
  // What Node compiles in the first answers counts for no schema.
  await written(model, undefined, options);
  await written(model, schemas[0]?.gbnf, options);
  for (const [place, { name, gbnf }] of schemas.entries()) {
    const constrained: Written[] = [];
    const free: Written[] = [];
    for (let round = 0; round < options.rounds; round++) {
      // Who goes first changes from schema to schema and from round to round.
      const isFreeFirst = (place + round) % 2 === 0;
      if (isFreeFirst) free.push(await written(model, undefined, options));
      constrained.push(await written(model, gbnf, options));
      if (!isFreeFirst) free.push(await written(model, undefined, options));
    }
    const constrainedMs = median(constrained.map(({ tokenMs }) => tokenMs));
    const freeMs = median(free.map(({ tokenMs }) => tokenMs));
    const slowestMs = Math.max(...constrained.map((each) => each.slowestMs));
    all.push({ name, constrainedMs, freeMs, ratio: constrainedMs / freeMs, slowestMs });
    if ((place + 1) % 10 === 0) say(`${place + 1} of ${schemas.length} schemas`);
  }
  await model.dispose();
  return all;
}

export function constraintTable(figures: readonly ConstraintFigures[], aim: number): string {
  const ratios = figures.map(({ ratio }) => ratio).sort((one, other) => one - other);
  const at = (share: number): string => (ratios[Math.ceil(share * ratios.length) - 1] ?? NaN).toFixed(2);
  const worst = [...figures].sort((one, other) => other.ratio - one.ratio).slice(0, 5);
  const ms = (value: number): string => value.toFixed(2);
  return [
    '| a token under a schema, processor time | |',
    '|-|-:|',
    `| schemas | ${figures.length} |`,
    `| without a schema, ms, median | ${ms(median(figures.map(({ freeMs }) => freeMs)))} |`,
    `| under a schema, ms, median | ${ms(median(figures.map(({ constrainedMs }) => constrainedMs)))} |`,
    `| ratio: median, 90 %, worst | ${at(0.5)}, ${at(0.9)}, ${at(1)} |`,
    `| schemas above ${aim} | ${ratios.filter((ratio) => ratio > aim).length} |`,
    `| slowest choice of a token, ms, by the clock | ${ms(Math.max(...figures.map(({ slowestMs }) => slowestMs)))} |`,
    '',
    '| the worst | ms | ratio | slowest choice, ms |',
    '|-|-:|-:|-:|',
    ...worst.map(
      (each) => `| ${each.name} | ${ms(each.constrainedMs)} | ${each.ratio.toFixed(2)} | ${ms(each.slowestMs)} |`,
    ),
  ].join('\n');
}

function compiledSchemas({ schemaFile, count }: ConstraintOptions, say: (line: string) => void) {
  const lines = readFileSync(schemaFile, 'utf8').split('\n');
  const all = lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Case);
  const wanted = Math.min(count, all.length);
  const chosen = Array.from({ length: wanted }, (_, index) => all[Math.floor((index * all.length) / wanted)]!);
  return chosen.flatMap(({ name, schema }) => {
    try {
      return [{ name, gbnf: printGbnf(jsonSchemaGrammar(schema, 'schema')) }];
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      say(`refused: ${name}: ${error.code}`);
      return [];
    }
  });
}

interface Case {
  readonly name: string;
  readonly schema: unknown;
}

interface Written {
  readonly tokenMs: number;
  readonly slowestMs: number;
}

/**
 * Answers are written until there are `tokens` of them: under a schema they end early, so that each begins again with the
 * same prompt. Reading the prompt and compiling the schema are not in the figures.
 */
async function written(
  model: LlamaModel,
  gbnf: string | undefined,
  { tokens, threads }: ConstraintOptions,
): Promise<Written> {
  const prompt = model.tokenize(promptText, true);
  const grammar = gbnf === undefined ? undefined : model.createGrammar(gbnf);
  let made = 0;
  let microseconds = 0;
  let slowestMs = 0;
  for (let answer = 0; made < tokens && answer < tokens; answer++) {
    const settings = samplingSettings(neutral, undefined, answer, () => 1);
    const sampler = new ChoiceSampler(model.createSampler(), settings, [...prompt], model.facts.contextLength);
    if (grammar !== undefined) sampler.constrain(grammar.begin());
    model.truncate(0, 0);
    let logits = await step(model, 0, prompt, threads);
    for (let position = prompt.length; made < tokens && position < model.facts.contextLength; position++) {
      const before = process.cpuUsage();
      const begun = performance.now();
      const id = (await model.sample([{ logits, sampler: sampler.sampler }]))[0] ?? -1;
      slowestMs = Math.max(slowestMs, performance.now() - begun);
      const isEnd = id >= 0 && model.isEndOfGeneration(id);
      const fits = sampler.judge(id, isEnd) === 'fits';
      if (fits && !isEnd) {
        sampler.accept(id);
        logits = await step(model, position, Uint32Array.of(id), threads);
      }
      const { user, system } = process.cpuUsage(before);
      if (!fits || isEnd) break;
      microseconds += user + system;
      made++;
    }
    sampler.dispose();
  }
  return { tokenMs: microseconds / 1000 / Math.max(1, made), slowestMs };
}

async function step(model: LlamaModel, position: number, ids: Uint32Array, threads: number): Promise<number> {
  model.beginBatch(ids.length);
  const logits = model.addToBatch(0, position, ids, true) ?? 0;
  await model.decode(threads);
  return logits;
}

const neutral = {
  temperature: 1,
  topP: undefined,
  topK: undefined,
  minP: undefined,
  presencePenalty: undefined,
  frequencyPenalty: undefined,
  repetitionPenalty: undefined,
  seed: 1,
};

const promptText = '<|im_start|>user\nWrite one short example in JSON.<|im_end|>\n<|im_start|>assistant\n';
