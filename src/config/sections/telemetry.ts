import type { Path } from '../document.ts';
import type { OtelVariables } from '../environment.ts';
import { Secret } from '../secret.ts';
import { flag, group, hidden, number, partUntilRestart, seconds, text, textLike, type Reading } from '../setting.ts';
import type { ValueOf } from '../setting.ts';
import { serverUrl } from './server-url.ts';

/** As in OpenTelemetry's variables: `name=value`, separated by commas, with percent escapes in values. */
const pairs = '^[^=,]+=[^,]*(,[^=,]+=[^,]*)*$';

/** The form of a service name, which is shown in every trace. */
const printed = '^[^\\x00-\\x1f\\x7f]{1,200}$';

/** `undefined`: nothing is sent. */
export const telemetry = group(
  'what is sent to a collector of OpenTelemetry (OTLP over HTTP): traces and metrics, never content; nothing without an endpoint',
  {
    endpoint: partUntilRestart(
      serverUrl(
        'URL of the collector, to which /v1/traces and /v1/metrics are appended; when left out, OTEL_EXPORTER_OTLP_ENDPOINT',
        'http://localhost:4318',
        'telemetry.headers',
      ),
    ),
    headers: hidden(
      partUntilRestart(
        textLike(pairs, 'headers for it, as name=value,name=value; when left out, OTEL_EXPORTER_OTLP_HEADERS', {
          example: 'authorization=Bearer%20secret',
        }),
      ),
    ),
    traces: partUntilRestart(flag('whether traces are sent', { default: true })),
    sampling_ratio: partUntilRestart(
      number(
        { minimum: 0, maximum: 1 },
        'share of the requests that are traced; a request with a traceparent is traced when that says so',
        { default: 1, example: 0.1 },
        (written) => written,
      ),
    ),
    metrics: partUntilRestart(flag('whether the figures of /metrics are sent', { default: true })),
    metrics_interval_seconds: partUntilRestart(seconds('how often they are sent', 60)),
    service_name: partUntilRestart(
      textLike(printed, 'name of this service in them; when left out, OTEL_SERVICE_NAME, or tokenhouse', {
        example: 'tokenhouse',
      }),
    ),
    resource_attributes: partUntilRestart(
      text('what else they say of it, as name=value,name=value; when left out, OTEL_RESOURCE_ATTRIBUTES', {
        example: 'deployment.environment.name=production',
      }),
    ),
  },
  (values, at, reading) => {
    const { otel } = reading.environment;
    const endpoint = values.endpoint ?? endpointOf(otel, at, reading);
    const { serviceName = otel.serviceName, ...others } = values;
    const headers = values.headers ?? otel.headers?.reveal();
    const resource = pairsOf(values.resourceAttributes ?? otel.resourceAttributes ?? '');
    if (headers !== undefined && endpoint !== undefined) reportHeaders(headers, at, reading);
    const inUse =
      endpoint === undefined
        ? undefined
        : {
            endpoint,
            headers: headers === undefined ? undefined : new Secret(headers),
            traces: others.traces ? { samplingRatio: others.samplingRatio } : undefined,
            metrics: others.metrics ? { everyMs: others.metricsIntervalMs } : undefined,
            serviceName: serviceName ?? resource.get('service.name') ?? 'tokenhouse',
            resource: [...resource],
          };
    reading.show([...at, 'endpoint'], endpoint);
    reading.fix(at, inUse);
    return inUse;
  },
);

function endpointOf({ isDisabled, endpoint, protocol }: OtelVariables, at: Path, { report }: Reading) {
  if (isDisabled || endpoint === undefined) return undefined;
  if (protocol === 'grpc')
    report(
      [...at, 'endpoint'],
      'OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and this service speaks OTLP over HTTP; write telemetry.endpoint, usually with port 4318, or set OTEL_SDK_DISABLED=true to send nothing',
    );
  const isUrl = /^https?:\/\//.test(endpoint) && URL.canParse(endpoint);
  if (isUrl) return endpoint.replace(/\/+$/, '');
  report([...at, 'endpoint'], 'OTEL_EXPORTER_OTLP_ENDPOINT is not a URL; write http://host:4318, or unset it');
  return undefined;
}

/** Headers that the connection itself sets. */
const ownHeaders = /^(host|connection|content-(type|length|encoding)|transfer-encoding|expect|upgrade|keep-alive|te)$/i;

function reportHeaders(text: string, at: Path, { report }: Reading): void {
  for (const [name, value] of pairsOf(text)) {
    const isHeader = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name) && /^[\x20-\x7e]*$/.test(value);
    // The value is a secret, and an invalid header may be one.
    if (!isHeader) report([...at, 'headers'], 'not a list of headers; write name=value,name=value');
    else if (ownHeaders.test(name)) report([...at, 'headers'], `the header ${name} cannot be set; leave it out`);
  }
}

/** Parses the names and values of a list; names of headers and attributes have no escapes. */
export function pairsOf(text: string): ReadonlyMap<string, string> {
  const entries = text.split(',').flatMap((pair): [string, string][] => {
    const equals = pair.indexOf('=');
    return equals <= 0 ? [] : [[pair.slice(0, equals).trim(), unescaped(pair.slice(equals + 1).trim())]];
  });
  return new Map(entries);
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export type TelemetryConfig = NonNullable<ValueOf<typeof telemetry>>;
