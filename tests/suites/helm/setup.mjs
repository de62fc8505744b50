// Helm and kubeconform, built from their Go modules; and the schemas of Kubernetes, from its own module: 20 minutes and 300 MB the
// first time.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { goProgram } from '../../../scripts/go-program.mjs';

const kubernetes = '1.34.1';

export const setup = () => ({
  ...goProgram({
    name: 'helm',
    package: 'helm.sh/helm/v3/cmd/helm',
    version: 'v3.22.0',
    go: '1.26',
    variable: 'HELM',
    proof: ['version'],
  }),
  ...goProgram({
    name: 'kubeconform',
    package: 'github.com/yannh/kubeconform/cmd/kubeconform',
    version: 'v0.7.0',
    go: '1.24',
    variable: 'KUBECONFORM',
    proof: ['-v'],
  }),
  KUBERNETES_VERSION: kubernetes,
  KUBERNETES_SCHEMAS: schemas(),
});

/** A folder with a schema for each kind, in which a field that does not exist is an error. */
function schemas() {
  const folder = cacheFolder(`kubernetes-schemas-${kubernetes}`);
  if (fs.existsSync(path.join(folder, 'done'))) return folder;
  const { stdout, status } = spawnSync('go', ['mod', 'download', '-json', `k8s.io/kubernetes@v${kubernetes}`], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 2],
  });
  if (status !== 0)
    throw new Error('the schemas of Kubernetes could not be fetched; check the network and the Go module proxy');
  const { Dir } = JSON.parse(stdout.toString());
  const { definitions } = JSON.parse(fs.readFileSync(path.join(Dir, 'api', 'openapi-spec', 'swagger.json'), 'utf8'));
  const strict = Object.fromEntries(Object.entries(definitions).map(([name, one]) => [name, closed(name, one)]));
  fs.writeFileSync(path.join(folder, 'definitions.json'), JSON.stringify({ definitions: strict }));
  for (const [name, one] of Object.entries(strict))
    for (const { group, kind, version } of one['x-kubernetes-group-version-kind'] ?? []) {
      const file = [kind, ...(group === '' ? [] : [group.split('.')[0]]), version].join('-').toLowerCase();
      const schema = { $ref: `definitions.json#/definitions/${name}` };
      fs.writeFileSync(path.join(folder, `${file}.json`), JSON.stringify(schema));
    }
  fs.writeFileSync(path.join(folder, 'done'), '');
  return folder;
}

/** Some types are texts or numbers on the wire, whatever their description says. */
function closed(name, definition) {
  if (/\.(IntOrString)$/.test(name)) return { oneOf: [{ type: 'string' }, { type: 'integer' }] };
  if (/\.(Quantity)$/.test(name)) return { oneOf: [{ type: 'string' }, { type: 'number' }] };
  return definition.properties === undefined ? definition : { ...definition, additionalProperties: false };
}
