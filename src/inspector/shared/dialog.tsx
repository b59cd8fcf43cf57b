/** A modal dialog: it takes the focus, Escape closes it, and the focus returns. */
import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef } from 'preact/hooks'

type DialogProps = {
  readonly title: string
  readonly onClose: () => void
  /** False: nothing works before it is answered, so that Escape does not close it. */
  readonly canClose?: boolean
  /** Its title is for screen readers alone. */
  readonly isBare?: boolean
  readonly children: ComponentChildren
}

export function Dialog({ title, onClose, canClose = true, isBare = false, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  // Before the next key can come: it is for the dialog.
  useLayoutEffect(() => {
    const { current } = dialog
    if (current !== null && !current.open) current.showModal()
    return () => current?.close()
  }, [])
  return (
    <dialog
      ref={dialog}
      data-bare={isBare ? '' : undefined}
      aria-labelledby={id}
      onCancel={(event) => {
        if (!canClose) event.preventDefault()
      }}
      onClose={onClose}
      onClick={(event) => {
        if (canClose && event.target === event.currentTarget) event.currentTarget.close()
      }}
    >
      <div class={isBare ? 'dialog-bare' : 'dialog-body'}>
        <h2 id={id} class={isBare ? 'seen-only-by-readers' : undefined}>
          {title}
        </h2>
        {children}
      </div>
    </dialog>
  )
}
