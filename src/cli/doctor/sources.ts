import { Discovery } from '../../app/discovery/discovery.ts';
import { openSource } from '../../app/discovery/open-source.ts';
import { openStoreReader } from '../../app/stores.ts';
import { createLog } from '../../platform/log.ts';
import { repositoriesOn } from '../../store/repositories/repositories.ts';
import type { Finding, Patient } from './finding.ts';

type Source = Exclude<Patient['status'], 'other' | undefined>['sources'][number];

/** Checks the sources of backends that are not in the configuration: as the running service sees them, otherwise directly. */
export async function lookAtSources(patient: Patient): Promise<readonly Finding[]> {
  const { status, config } = patient;
  if (config.models.every(({ sources }) => sources.length === 0)) return [];
  const sources = status === undefined || status === 'other' ? await lookHere(patient) : status.sources;
  return sources.map(findingOf);
}

async function lookHere({ config }: Patient): Promise<readonly Source[]> {
  const db = await openStoreReader(config.storage).catch(() => undefined);
  const added = db === undefined ? undefined : repositoriesOn(db);
  const discovery = new Discovery({
    open: (model, source, reader) =>
      openSource(model, source, reader, {
        listAddedBackends: async (request) => (await added?.listAddedBackends(request)) ?? [],
      }),
    log: createLog({ write: () => true, once: () => {} }),
    now: Date.now,
    changed: () => {},
  });
  try {
    (await discovery.prepare(config, new AbortController().signal)).commit();
    return discovery.statuses;
  } finally {
    discovery.close();
    await db?.destroy();
  }
}

function findingOf({ model, source, by, listed, inUse, problem }: Source): Finding {
  const check = 'source';
  const found = `${model} · ${source} · ${by} · ${listed} servers, ${inUse} of them in use`;
  if (problem === null && listed > 0) return { check, state: 'ok', found };
  return {
    check,
    state: inUse === 0 ? 'problem' : 'warning',
    found,
    why: problem ?? 'it names no server, so requests to the model are answered 503 no_healthy_backends',
    repair: 'tokenhouse config show (see models[].backends[].discover)',
  };
}
