import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { onCore } from './processes.ts';
import { isStream, type Scenario } from './scenarios.ts';
import { chat } from './family.ts';

/** What load.c prints. */
export interface LoadResult {
  readonly started: number;
  readonly good: number;
  readonly bad: number;
  readonly hung: number;
  readonly aborted: number;
  readonly tokens: number;
  readonly seconds: number;
  readonly latencyUs: Quantiles;
  readonly firstTokenUs: Quantiles;
  readonly gapUs: Quantiles;
  /** Its first complaints about bad answers. */
  readonly complaints: string;
}

export interface Quantiles {
  readonly count: number;
  readonly p50: number;
  readonly p90: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
}

export interface LoadOptions {
  readonly program: string;
  readonly core: number | undefined;
  readonly port: number;
  readonly requestFile: string;
  readonly request: string;
  readonly scenario: Scenario;
  readonly seconds: number;
  /** It ends after so many, where that is earlier. */
  readonly requests?: number | undefined;
}

export async function runLoad({
  program,
  core,
  port,
  requestFile,
  request,
  scenario,
  seconds,
  requests = 0,
}: LoadOptions): Promise<LoadResult> {
  writeFileSync(requestFile, request);
  const { textField, done } = scenario.family ?? chat;
  const [command, ...parameters] = onCore(
    [
      program,
      ...['-p', String(port)],
      ...['-f', requestFile],
      ...['-c', String(scenario.connections)],
      ...['-t', String(seconds)],
      ...['-e', String(scenario.tokens)],
      ...['-r', String(scenario.ratePerSecond ?? 0)],
      ...['-a', String(scenario.abortPercent ?? 0)],
      ...['-n', String(requests)],
      ...['-k', isStream(scenario) ? textField.stream : textField.whole],
      ...['-d', done],
      ...['-s', String(scenario.status ?? 200)],
    ],
    core,
  );
  // It gives up by itself ten seconds after the last request.
  const { stdout, stderr } = await promisify(execFile)(command!, parameters, {
    timeout: Math.ceil(seconds + 30) * 1000,
  });
  return { ...(JSON.parse(stdout) as Omit<LoadResult, 'complaints'>), complaints: stderr.trim() };
}
