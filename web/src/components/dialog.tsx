/**
 * Dialogs are the browser's own (`showModal`): it keeps the focus inside, gives it back, and closes on Escape. What floats (menus,
 * tips) has to be inside of it to be above it: `FloatingHome`.
 */
import { createContext, useEffect, useId, useRef, useState } from 'react';
import type { ReactNode } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import { useText } from '../i18n/text.ts';
import { Button, IconButton } from './button.tsx';
import { classes } from './classes.ts';
import { Form, FormButtons } from './form.tsx';
import { CloseIcon } from './icons.tsx';
import styles from './dialog.module.css';

/** Where what floats is put: the dialog around it; null: the page. */
export const FloatingHome = createContext<HTMLElement | null>(null);

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  /** False: it is closed by its own buttons alone, because something would be lost. */
  readonly dismissable?: boolean;
  readonly wide?: boolean;
  readonly children: ReactNode;
}

/** Open as long as it is rendered. */
export function Dialog({ title, onClose, dismissable = true, wide, children }: DialogProps) {
  const t = useText<AppTexts>('app');
  const [element, setElement] = useState<HTMLDialogElement | null>(null);
  const pressedOutside = useRef(false);
  const id = useId();
  useEffect(() => {
    if (element === null || element.open) return undefined;
    element.showModal();
    const first =
      element.querySelector<HTMLElement>('[autofocus], [data-autofocus]') ??
      element.querySelector<HTMLElement>('input:not([type=hidden]), select, textarea');
    first?.focus();
    return undefined;
  }, [element]);
  return (
    <dialog
      ref={setElement}
      className={classes(styles['dialog'], wide === true && styles['wide'])}
      aria-labelledby={id}
      onCancel={(event) => {
        if (event.target !== event.currentTarget) return;
        event.preventDefault();
        if (dismissable) onClose();
      }}
      onKeyDown={(event) => {
        // Chromium closes on the second Escape whatever was said to the first.
        if (event.key === 'Escape' && !dismissable) event.preventDefault();
      }}
      onPointerDown={(event) => (pressedOutside.current = event.target === event.currentTarget)}
      onClick={(event) => {
        if (dismissable && pressedOutside.current && event.target === event.currentTarget) onClose();
      }}
    >
      <div className={styles['head']}>
        <h2 id={id}>{title}</h2>
        {dismissable && <IconButton label={t('close')} icon={<CloseIcon />} onClick={onClose} />}
      </div>
      <div className={styles['body']}>
        <FloatingHome value={element}>{children}</FloatingHome>
      </div>
    </dialog>
  );
}

interface FormDialogProps {
  readonly title: string;
  /** Before the fields. */
  readonly text?: ReactNode;
  /** The fields. */
  readonly children: ReactNode;
  /** The verb on the button. */
  readonly action: string;
  readonly wide?: boolean;
  readonly busy: boolean;
  readonly error: unknown;
  readonly onSubmit: (form: FormData) => void;
  readonly onClose: () => void;
}

/** A form with one button, which sends it. */
export function FormDialog({ title, text, children, action, wide, busy, error, onSubmit, onClose }: FormDialogProps) {
  return (
    <Dialog title={title} onClose={onClose} {...(wide === undefined ? {} : { wide })}>
      {text !== undefined && <p>{text}</p>}
      <Form error={error} onSubmit={onSubmit}>
        {children}
        <FormButtons>
          <Button type="submit" look="primary" busy={busy}>
            {action}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

interface ConfirmDialogProps {
  readonly title: string;
  /** What happens, and what does not. */
  readonly children: ReactNode;
  /** The verb on the button. */
  readonly action: string;
  readonly danger?: boolean;
  readonly busy?: boolean;
  readonly error?: unknown;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}

/** Before what cannot be undone. */
export function ConfirmDialog({
  title,
  children,
  action,
  danger,
  busy,
  error,
  onConfirm,
  onClose,
}: ConfirmDialogProps) {
  const t = useText<AppTexts>('app');
  return (
    <Dialog title={title} onClose={onClose}>
      <Form error={error} onSubmit={onConfirm}>
        <div>{children}</div>
        <FormButtons>
          <Button onClick={onClose} data-autofocus="">
            {t('cancel')}
          </Button>
          <Button type="submit" look={danger === true ? 'danger' : 'primary'} busy={busy === true}>
            {action}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}
