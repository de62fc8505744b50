import { useState } from 'react';
import type { ReactNode } from 'react';

import { useGet, useSend } from '../../api/use-api.ts';
import type { SendInput, Sent } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { classes } from '../../components/classes.ts';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import styles from './operator-catalogue.module.css';

const previewPath = '/v1/admin/configuration/preview';
export type Change = NonNullable<SendInput<'post', typeof previewPath>['body']>;
type Preview = Sent<'post', typeof previewPath>;

/** A change of the configuration file: shown first, and then made as it was shown. */
export function useChange(onSaved: () => void) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const preview = useSend('post', previewPath);
  const save = useSend('post', '/v1/admin/configuration/changes', {
    refreshes: ['/v1/admin/', '/v1/models/'],
  });
  const [shown, setShown] = useState<{ readonly change: Change; readonly of: Preview }>();
  const forget = (): void => {
    setShown(undefined);
    preview.reset();
    save.reset();
  };
  const show = (change: Change): void => {
    save.reset();
    preview.mutate({ body: change }, { onSuccess: (of) => setShown({ change, of }) });
  };
  const keep = (): void => {
    if (shown === undefined) return;
    const { change, of } = shown;
    save.mutate(
      { body: { ...change, digest: of.digest } },
      {
        onSuccess: () => {
          toast(t('applied'));
          onSaved();
        },
        // Somebody else has changed the file: what is shown is no longer what would be written.
        onError: ({ status }) => {
          if (status === 409) setShown(undefined);
        },
      },
    );
  };
  return {
    /** What is shown, and not yet written. */
    shown: shown?.of,
    error: preview.error ?? save.error,
    isAsking: preview.isPending,
    isSaving: save.isPending,
    show,
    keep,
    forget,
  };
}

/** Why nothing can be changed here, if that is so. */
export function useUnwritable(): string | undefined {
  return useGet('/v1/admin/configuration').data?.problem ?? undefined;
}

/** The lines that go and come, each with its sign. */
export function Difference({ of: { file, difference } }: { readonly of: Preview }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <section className={styles['effect']} aria-label={t('differenceIn', { file })} role="status">
      <h3>{t('differenceIn', { file })}</h3>
      {difference.length === 0 ? (
        <p className={styles['hint']}>{t('nothingChanges')}</p>
      ) : (
        <pre className={styles['difference']} tabIndex={0}>
          {difference.map((line, index) => (
            <span
              // Lines may be equal, and never move.
              key={index}
              className={classes(
                line.startsWith('+') && styles['added'],
                line.startsWith('-') && styles['removed'],
                line.startsWith('@@') && styles['hint'],
              )}
            >
              {`${line}\n`}
            </span>
          ))}
        </pre>
      )}
    </section>
  );
}

interface ChangeDialogProps {
  readonly title: string;
  readonly text?: ReactNode;
  /** The fields; a change in them makes what was shown void. */
  readonly children?: ReactNode;
  /** Undefined: nothing to change. */
  readonly changeOf: (form: FormData) => Change | undefined;
  readonly danger?: boolean;
  readonly onClose: () => void;
}

/** A form whose change is shown before it is made. */
export function ChangeDialog({ title, text, children, changeOf, danger, onClose }: ChangeDialogProps) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [isEmpty, setEmpty] = useState(false);
  const change = useChange(onClose);
  const unwritable = useUnwritable();
  const submit = (form: FormData): void => {
    const wanted = changeOf(form);
    setEmpty(wanted === undefined);
    if (wanted !== undefined) change.show(wanted);
  };
  return (
    <Dialog title={title} onClose={onClose} wide={change.shown !== undefined}>
      {text !== undefined && <p>{text}</p>}
      {unwritable !== undefined && <p className={styles['unwritable']}>{unwritable}</p>}
      <Form error={change.error} onSubmit={submit}>
        <div className={styles['fields']} onChange={change.forget}>
          {children}
        </div>
        {change.shown !== undefined && <Difference of={change.shown} />}
        {isEmpty && change.shown === undefined && <p className={styles['hint']}>{t('nothingChanges')}</p>}
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <ChangeButtons change={change} danger={danger === true} isWritable={unwritable === undefined} />
        </FormButtons>
      </Form>
    </Dialog>
  );
}

/** First the difference, then the change. */
export function ChangeButtons({
  change,
  danger = false,
  isWritable,
}: {
  readonly change: ReturnType<typeof useChange>;
  readonly danger?: boolean;
  readonly isWritable: boolean;
}) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const canKeep = change.shown !== undefined && change.shown.difference.length > 0 && isWritable;
  return (
    <>
      <Button type="submit" look={canKeep ? 'plain' : 'primary'} busy={change.isAsking}>
        {t('showDifference')}
      </Button>
      {canKeep && (
        <Button look={danger ? 'danger' : 'primary'} busy={change.isSaving} onClick={change.keep}>
          {t('apply')}
        </Button>
      )}
    </>
  );
}
