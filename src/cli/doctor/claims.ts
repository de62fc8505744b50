import { lacksAfter, lookAtClaims as lookAt, type ClaimReport } from '../../app/claims.ts';
import { placeOfFlag } from '../../catalog/card-flags.ts';
import { withCorrection, type Correction } from '../../config/edit.ts';
import { placeInFile } from '../../config/sections/backends.ts';
import type { ModelConfig, OpenAiBackendConfig } from '../../config/config.ts';
import type { FeatureName } from '../../generation/feature-names.ts';
import { claims } from '../../inference/claims/claims.ts';
import { writeConfig } from '../write-config.ts';
import type { Context } from '../context.ts';
import type { Finding } from './finding.ts';

interface Looked {
  readonly model: ModelConfig;
  readonly backend: OpenAiBackendConfig;
  readonly reports: readonly ClaimReport[];
}

/** Servers that are tested at the same time; each gets one request at a time. */
const serversAtOnce = 4;

/**
 * Checks whether the servers in the file do what the cards of their models say. `write`: corrects the file by what was found, all
 * of it or, if the result would be refused, nothing.
 */
export async function lookAtClaims(patient: Context, write: boolean): Promise<readonly Finding[]> {
  const { config } = patient;
  // An adapter is served by the servers of its base, and the file has them there.
  const models = config.models.filter(({ adapterOf }) => adapterOf === undefined);
  const wanted = models.flatMap((model) =>
    model.backends.flatMap((backend) =>
      backend.engine === 'openai' && backend.managed === undefined ? [{ model, backend }] : [],
    ),
  );
  const looked: Looked[] = [];
  for (let from = 0; from < wanted.length; from += serversAtOnce) {
    const some = wanted.slice(from, from + serversAtOnce).map(async ({ model, backend }) => ({
      ...{ model, backend },
      reports: await lookAt(model, backend, config.server.limits, new AbortController().signal),
    }));
    looked.push(...(await Promise.all(some)));
  }
  const findings = looked.flatMap((each) => findingsOf(each));
  if (!write) return findings;
  const corrections = models.flatMap((model) => correctionOf(model, looked) ?? []);
  return [...findings, await corrected(patient, corrections)];
}

function findingsOf({ model, backend, reports }: Looked): readonly Finding[] {
  const check = 'claims';
  const name = `${model.id} · ${backend.name}`;
  const kept = reports.filter(({ state }) => state === 'kept');
  const unknown = reports.filter(({ state }) => state === 'unknown');
  const broken = reports.filter(({ state }) => state === 'broken');
  const isTakenBack = (claim: string): boolean => backend.lacks.some((each) => each === claim);
  return [
    {
      check,
      state: 'ok',
      found: [
        `${name} · ${kept.map(({ claim }) => claim).join(', ') || 'nothing kept'}`,
        ...unknown.map(({ claim, found }) => `${claim} unknown: ${found}`),
      ].join(' · '),
    },
    ...broken
      .filter(({ claim }) => !isTakenBack(claim))
      .map(({ claim, found }): Finding => ({
        check,
        state: 'warning',
        found: `${name} · ${claim}: the card says that it ${claims[claim].what}`,
        why: found ?? '',
        repair: canBeWritten(claim)
          ? 'tokenhouse doctor --write'
          : 'see the documentation of the server; nothing in the configuration changes this',
      })),
    ...kept
      .filter(({ claim }) => isTakenBack(claim))
      .map(({ claim }): Finding => ({
        check,
        state: 'warning',
        found: `${name} · ${claim}: the file says that it lacks it (\`lacks\`)`,
        why: `it ${claims[claim].what}, so requests could go there`,
        repair: 'tokenhouse doctor --write',
      })),
  ];
}

const canBeWritten = (claim: ClaimReport['claim']): boolean => claim !== 'usage' && claim !== 'abort';

/** `undefined`: no change. */
function correctionOf(model: ModelConfig, looked: readonly Looked[]): Correction | undefined {
  const own = looked.filter((each) => each.model === model);
  const lacks = new Map<number, readonly FeatureName[]>();
  const after = own.map(({ backend, reports }) => {
    const names = lacksAfter(backend.lacks, reports);
    if (names.join() !== backend.lacks.join()) lacks.set(placeInFile(model, model.backends.indexOf(backend)), names);
    return names;
  });
  const isAll = own.length === model.backends.length && model.sources.length === 0;
  const [first = []] = after;
  const lackedByAll = isAll ? first.filter((name) => after.every((names) => names.includes(name))) : [];
  const windows = own.flatMap(({ reports }) =>
    reports.flatMap(({ claim, measured }) => (claim === 'window' && measured !== undefined ? [measured] : [])),
  );
  const contextLength = windows.length === 0 ? undefined : Math.min(...windows);
  if (lacks.size === 0 && contextLength === undefined) return undefined;
  const falseFlags = lackedByAll.flatMap((name) => {
    const place = placeOfFlag(name);
    return place === undefined ? [] : [['capabilities', ...place]];
  });
  return { id: model.id, lacks, falseFlags, contextLength };
}

async function corrected(patient: Context, corrections: readonly Correction[]): Promise<Finding> {
  const check = 'configuration';
  if (corrections.length === 0) return { check, state: 'ok', found: 'says what the servers do' };
  const given = patient.config.file;
  let skipped: string | undefined;
  const { written, reloaded } = await writeConfig(patient, given, (text) =>
    corrections.reduce((whole, correction) => {
      const changed = withCorrection(whole, correction);
      if (changed === undefined) skipped = correction.id;
      return changed ?? whole;
    }, text),
  );
  const found = `${written} · corrected for ${corrections.map(({ id }) => id).join(', ')}${reloaded ? ' · in force' : ''}`;
  if (skipped === undefined) return { check, state: 'ok', found };
  return {
    check,
    state: 'warning',
    found,
    why: `the backends of ${skipped} are not written as a list of their own`,
    repair: 'tokenhouse config show (and write `lacks` by hand)',
  };
}
