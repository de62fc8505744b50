import { useKeys, useMembers } from '../../api/known.ts';

/** Whose spending is watched: by name where the newest of the list have it. */
export function SubjectName({ kind, id }: { readonly kind: 'key' | 'member' | 'tag'; readonly id: string }) {
  const keys = useKeys();
  const members = useMembers();
  const named: readonly { readonly id: string; readonly name: string }[] =
    kind === 'key' ? keys : kind === 'member' ? members : [];
  return <bdi>{named.find((one) => one.id === id)?.name ?? id}</bdi>;
}
