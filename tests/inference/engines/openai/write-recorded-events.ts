/**
 * Writes what the decoder makes of every recorded stream beside the stream, for a person to read before it is committed:
 * `node scripts/run.mjs tests/inference/engines/openai/write-recorded-events.ts`.
 */
import { writeFileSync } from 'node:fs';
import {
  decode,
  eventLines,
  folderOf,
  recordedServers,
  recordedSettings,
  recordedStreams,
  recording,
  type RecordedServer,
} from './decoding.ts';

for (const server of Object.keys(recordedServers) as RecordedServer[]) {
  for (const name of recordedStreams(server)) {
    const { events, failure } = decode([recording(`${name}.sse`, server)], recordedSettings(name, server));
    writeFileSync(new URL(`${name}.events`, folderOf(server)), eventLines(events, failure));
  }
}
