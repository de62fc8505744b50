import { runnable } from '../../config/environment.ts';
import type { Config } from '../../config/config.ts';
import { ConfigError } from '../../config/problem.ts';
import { askForStatus } from '../../app/control/control-client.ts';
import { controlSocketPath } from '../../app/control/socket-path.ts';
import type { BareContext, Context } from '../context.ts';
import { lookAtAnswers, lookAtBackends } from './backends.ts';
import { lookAtClaims } from './claims.ts';
import type { Finding, Patient } from './finding.ts';
import { lookAtDatabase } from './database.ts';
import { lookAtLibraries } from './libraries.ts';
import { lookAtModels } from './models.ts';
import { lookAtSources } from './sources.ts';
import { lookAtClock, lookAtFolders, lookAtNode, lookAtOpenFiles, lookAtPorts } from './system.ts';
import { repairOfVariable } from '../failure.ts';
import { quoted } from '../folder.ts';
import { readContext } from '../read-context.ts';
import { counted } from '../amount.ts';
import { withoutControls } from '../output.ts';

export interface DoctorOptions {
  /** Sends requests to the backends, to check whether they do what the cards say. */
  readonly claims?: boolean;
  /** Corrects the configuration by what was found. */
  readonly write?: boolean;
}

/** `tokenhouse doctor`: changes nothing without `--write`; works with or without a running service. Exit 1 if there is a problem. */
export async function doctor(bare: BareContext, { claims = false, write = false }: DoctorOptions): Promise<number> {
  const { around, print } = bare;
  const findings: Finding[] = [];
  const looked: Finding[] = [];
  const report = (...found: readonly Finding[]): void => {
    for (const each of found) {
      const finding = each.repair === undefined ? each : { ...each, repair: runnable(each.repair) };
      findings.push(finding);
      if (!print.json) for (const line of linesOf(finding)) around.stdout.write(`${withoutControls(line)}\n`);
    }
  };
  report(lookAtNode(process.versions.node), ...(await lookAtOpenFiles()), ...(await lookAtLibraries()));
  const patient = await examine(bare, looked);
  report(...looked);
  if (patient !== undefined) {
    report(lookAtService(patient));
    report(...lookAtFolders(patient));
    report(...(await lookAtPorts(patient)));
    const { findings: ofDatabase, newestAt } = await lookAtDatabase(patient);
    report(...ofDatabase, lookAtClock(Date.now(), newestAt));
    report(...(await lookAtModels(patient)));
    report(...(await lookAtBackends(patient)), ...lookAtAnswers(patient));
    report(...(await lookAtSources(patient)));
    if (claims || write) report(...(await lookAtClaims(patient, write)));
  }
  const problems = findings.filter(({ state }) => state === 'problem').length;
  const warnings = findings.filter(({ state }) => state === 'warning').length;
  if (print.json) print.result({ ok: problems === 0, problems, warnings, checks: findings }, []);
  else
    print.say(
      problems + warnings === 0
        ? 'no problems found'
        : `${counted(problems, 'problem')}, ${counted(warnings, 'warning')}`,
    );
  return problems === 0 ? 0 : 1;
}

/** Reads the configuration like a start; if that fails, nothing that depends on it can be checked. */
async function examine(
  { around, configPath, print }: BareContext,
  findings: Finding[],
): Promise<(Patient & Context) | undefined> {
  try {
    const context = { around, print, ...readContext(configPath, around.directory) };
    const { config } = context;
    findings.push({
      check: 'configuration',
      state: 'ok',
      found: `${config.file ?? 'no file, the defaults'} · ${counted(config.models.length, 'model')}`,
    });
    const status = await askForStatus(controlSocketPath(config.storage.directory)).catch(() => 'other' as const);
    return { ...context, status };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    findings.push(
      ...error.problems.map((problem): Finding => ({
        check: 'configuration',
        state: 'problem',
        found: problem.where,
        why: problem.what,
        repair:
          repairOfVariable(problem) ??
          (configPath === undefined ? 'tokenhouse config check' : `tokenhouse config check ${quoted(configPath)}`),
      })),
    );
    return undefined;
  }
}

function lookAtService({ status, config }: Patient): Finding {
  const check = 'service';
  if (status === undefined) return { check, state: 'ok', found: 'not running on this data folder (npm start)' };
  if (status === 'other') {
    return {
      check,
      state: 'warning',
      found: 'running, but it does not report its state',
      why: 'its version differs from the version of this command, or it does not respond',
      repair: 'npm start (after stopping it)',
    };
  }
  const failed = status.backends.filter(({ state }) => state === 'failed');
  const found = `running · process ${status.pid} · ${status.version} · ${status.inferenceUrl ?? 'starting'}`;
  if (failed.length === 0) return { check, state: 'ok', found };
  return {
    check,
    state: 'problem',
    found: `${found} · not available: ${failed.map(({ modelId, label }) => `${modelId} (${label})`).join(', ')}`,
    why: 'requests to these models are answered 503 no_healthy_backends',
    ...repairOf(failed[0]!, config),
  };
}

/** A file that is missing is fetched; a server elsewhere is asked, by the check of its own below. */
function repairOf(
  { modelId, label }: { readonly modelId: string; readonly label: string },
  { models }: Config,
): Pick<Finding, 'repair'> {
  const backend = models.find(({ id }) => id === modelId)?.backends.find(({ name }) => name === label);
  if (backend?.engine === 'llama') return { repair: `tokenhouse models pull ${quoted(modelId)}` };
  return backend?.engine === 'openai' ? { repair: `curl -i ${backend.url}/models` } : {};
}

function linesOf({ check, state, found, more, why, repair }: Finding): readonly string[] {
  return [
    `${state.padEnd(8)} ${check.padEnd(14)} ${found}`,
    ...(more === undefined ? [] : [`${' '.repeat(24)}${more}`]),
    ...(why === undefined ? [] : [`           why     ${why}`]),
    ...(repair === undefined ? [] : [`           repair  ${repair}`]),
  ];
}
