/** Keys and people by name: the API's reports have their ids. */
import { knownMax, useKeys, useMembers } from '../../api/known.ts';
import { useGet } from '../../api/use-api.ts';
import type { Grouping } from './sums.ts';
import styles from './usage.module.css';

/** Also of a key that is revoked, or older than a list is long. */
export function KeyName({ id }: { readonly id: string }) {
  const keys = useGet('/v1/keys', { query: { include_disabled: true, limit: knownMax } });
  const listed = keys.data?.data.find((key) => key.id === id);
  const asked = useGet('/v1/keys/{id}', { path: { id } }, { enabled: keys.data !== undefined && listed === undefined });
  const name = listed?.name ?? asked.data?.name;
  if (name === undefined) return <code>{id}</code>;
  return <Name of={name} />;
}

/** Names for the groups of a report, for its chart. */
export function useNames(by: Grouping): (id: string) => string {
  const keys = useKeys();
  const members = useMembers();
  const of: readonly { readonly id: string; readonly name: string }[] =
    by === 'key' ? keys : by === 'person' ? members : [];
  return (id) => of.find((one) => one.id === id)?.name ?? id;
}

/** What somebody has called something: on one line, and its direction of writing ends with it. */
export const Name = ({ of: name }: { readonly of: string }) => (
  <bdi className={styles['name']} title={name}>
    {name}
  </bdi>
);
