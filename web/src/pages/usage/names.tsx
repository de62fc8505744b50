/** Keys and people by name: the API's reports have their ids. */
import { useKeyNames, useMembers } from '../../api/known.ts';
import { useEndingName } from '../../components/ending.tsx';
import type { Grouping } from './groupings.ts';
import styles from './usage.module.css';

/** `name`: of `useKeyNames`, which a list asks once for all of its rows. */
export const KeyName = ({ id, name }: { readonly id: string; readonly name: string | undefined }) =>
  name === undefined ? <code>{id}</code> : <Name of={name} />;

/** Names for the groups of a report; undefined: it is known by its id. */
export function useNames(by: Grouping, ids: readonly (string | null)[]): (id: string) => string | undefined {
  const keyName = useKeyNames(
    ids.filter((id) => id !== null),
    by === 'key',
  );
  const members = useMembers(by === 'person');
  const endingName = useEndingName();
  if (by === 'key') return keyName;
  if (by === 'ending') return endingName;
  return (id) => (by === 'person' ? members.find((one) => one.id === id)?.name : id);
}

/** What somebody has called something: on one line, and its direction of writing ends with it. */
export const Name = ({ of: name }: { readonly of: string }) => (
  <bdi className={styles['name']} title={name}>
    {name}
  </bdi>
);
