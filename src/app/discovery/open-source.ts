import type { BackendSource, ModelConfig } from '../../config/config.ts';
import { watchFile } from '../../config/watch.ts';
import { openDns } from '../../inference/discovery/dns.ts';
import { openFile } from '../../inference/discovery/file.ts';
import { openKubernetes } from '../../inference/discovery/kubernetes.ts';
import { pollSource, type RunningSource, type SourceReader } from '../../inference/discovery/source.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';

/** How often backends added by operators are read: changes of other replicas apply within this time. */
const addedEveryMs = 1_000;

/** Starts reading a source: the only place that knows the kinds of sources. */
export function openSource(
  { id }: ModelConfig,
  { name, template: { url }, discover }: BackendSource,
  reader: SourceReader,
  repositories: Pick<Repositories, 'listAddedBackends'>,
): RunningSource {
  switch (discover.by) {
    case 'dns':
    case 'srv':
      return openDns(url, discover, reader);
    case 'kubernetes':
      return openKubernetes(url, discover, reader);
    case 'file':
      return openFile(discover, reader, { watch: watchFile });
    case 'api':
      return pollSource(
        async () => {
          const added = await repositories.listAddedBackends({ model: id.toLowerCase(), source: name });
          return { servers: added, againMs: addedEveryMs };
        },
        reader,
        'the database cannot be asked',
      );
  }
}
