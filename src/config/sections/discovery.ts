import path from 'node:path';
import type { Environment } from '../environment.ts';
import {
  flag,
  group,
  integer,
  milliseconds,
  number,
  oneOf,
  required,
  tag,
  text,
  textLike,
  type Setting,
  type ValueOf,
} from '../setting.ts';
import { dnsServers } from './dns-servers.ts';
import { serverUrl } from './server-url.ts';

const by = <Name extends string>(name: Name) => tag(name, 'where the list of servers comes from');

const common = {
  max_backends: integer(1, 4096, 'servers that are used at most; of a longer list the first', { default: 256 }),
  warm_up: flag('a server that joins first answers a short request of our own; false: it is only looked at', {
    default: true,
  }),
};

const secondsOf = (seconds: number): number => milliseconds(seconds, 1_000);

/** An answer without a server is usually a fault, not intent. */
const emptyAfter = {
  empty_after_seconds: number(
    { minimum: 0, maximum: 86_400 },
    'an answer without any server counts once it has been so for this long; never when left out: the last servers stay in use',
    { example: 60 },
    (seconds) => Math.round(seconds * 1_000),
  ),
};

const name = {
  dns_servers: dnsServers('name servers that are asked; those of the system when left out'),
  ttl_min_seconds: number(
    { minimum: 0.1, maximum: 3_600 },
    'the name is asked for at most this often, however short its TTL is',
    { default: 2 },
    secondsOf,
  ),
  ttl_max_seconds: number(
    { minimum: 0.1, maximum: 86_400 },
    'the name is asked for at least this often, however long its TTL is',
    { default: 30 },
    secondsOf,
  ),
};

const dns = group(
  'each address (A, AAAA) of the host in `url`; scheme, port and path are those of `url`',
  { by: by('dns'), ...common, ...emptyAfter, ...name },
  withOrderedTtls,
);

const srv = group(
  'the SRV records of the host in `url`; their priority is a rank, their weight a weight',
  { by: by('srv'), ...common, ...emptyAfter, ...name },
  withOrderedTtls,
);

function withOrderedTtls<Values extends { readonly ttlMinMs: number; readonly ttlMaxMs: number }>(
  values: Values,
  at: readonly (string | number)[],
  { report }: { report(at: readonly (string | number)[], what: string): void },
): Values {
  if (values.ttlMinMs > values.ttlMaxMs)
    report([...at, 'ttl_min_seconds'], 'it is above ttl_max_seconds, so neither could be kept; lower it');
  return values;
}

const dnsLabel = '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$';

const kubernetes = group(
  'the ready endpoints of a Kubernetes service, as its EndpointSlices list them; scheme and path are those of `url`',
  {
    by: by('kubernetes'),
    ...common,
    ...emptyAfter,
    service: required(textLike(dnsLabel, 'name of the service', { example: 'vllm' })),
    namespace: textLike(dnsLabel, 'its namespace; that of the pod of this service when left out', {
      example: 'models',
    }),
    port: textLike('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$', 'name of the port, where the service has several', {
      example: 'http',
    }),
    api_url: serverUrl(
      'address of the Kubernetes API; that of the cluster when left out',
      'https://kubernetes.default.svc',
    ),
    credentials_directory: text('folder with `token`, `ca.crt` and `namespace`; that of the pod when left out', {
      example: '/var/run/secrets/kubernetes.io/serviceaccount',
    }),
  },
  ({ credentialsDirectory, apiUrl, port: portName, ...others }, _at, { directory, environment }) => ({
    ...others,
    portName,
    apiUrl: apiUrl ?? clusterUrl(environment),
    credentialsDirectory:
      credentialsDirectory === undefined
        ? '/var/run/secrets/kubernetes.io/serviceaccount'
        : path.resolve(directory, credentialsDirectory),
  }),
);

/** The address that Kubernetes gives each of its pods. */
function clusterUrl(environment: Environment): string | undefined {
  const host = environment.variable('KUBERNETES_SERVICE_HOST');
  if (host === undefined) return undefined;
  return `https://${host.includes(':') ? `[${host}]` : host}:${environment.variable('KUBERNETES_SERVICE_PORT') ?? 443}`;
}

const file = group(
  'a file with a list of URLs (YAML or JSON), which is read again when it changes',
  {
    by: by('file'),
    ...common,
    path: required(text('the file, from the folder of tokenhouse.yaml', { example: 'backends.yaml' })),
  },
  ({ path: written, ...others }, _at, { directory }) => ({ ...others, path: path.resolve(directory, written) }),
);

const api = group('what operators add at the account host (`POST /v1/admin/backends`)', {
  by: by('api'),
  ...common,
});

/** The source of a backend's servers, if they are not listed. */
export const discovery = describedAs(
  'where the servers come from, when they are not listed; each of them is a backend as this entry says',
  oneOf('by', [dns, srv, kubernetes, file, api]),
);

function describedAs<Value>(description: string, setting: Setting<Value>): Setting<Value> {
  return { ...setting, schema: { ...setting.schema, description } };
}

export type DiscoveryConfig = ValueOf<typeof discovery>;
export type DnsDiscovery = Extract<DiscoveryConfig, { readonly by: 'dns' | 'srv' }>;
export type KubernetesDiscovery = Extract<DiscoveryConfig, { readonly by: 'kubernetes' }>;
export type FileDiscovery = Extract<DiscoveryConfig, { readonly by: 'file' }>;
