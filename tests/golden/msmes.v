

Canonical coefficients := Eval hnf in integers.
Open Scope Z_scope.

(* The scheme strassen <2,2,2;7> over Q. V. Strassen, Gaussian elimination is not optimal, Numer. Math. 13 (1969), 354-356. *)
Definition scheme : list (product coefficients) := [
  (* M1 *) Product [(1, A 0 0); (1, A 1 1)] [(1, B 0 0); (1, B 1 1)] [(1, C 0 0); (1, C 1 1)];
  (* M2 *) Product [(1, A 1 0); (1, A 1 1)] [(1, B 0 0)] [(1, C 1 0); (-1, C 1 1)];
  (* M3 *) Product [(1, A 0 0)] [(1, B 0 1); (-1, B 1 1)] [(1, C 0 1); (1, C 1 1)];
  (* M4 *) Product [(1, A 1 1)] [(-1, B 0 0); (1, B 1 0)] [(1, C 0 0); (1, C 1 0)];
  (* M5 *) Product [(1, A 0 0); (1, A 0 1)] [(1, B 1 1)] [(-1, C 0 0); (1, C 0 1)];
  (* M6 *) Product [(-1, A 0 0); (1, A 1 0)] [(1, B 0 0); (1, B 0 1)] [(1, C 1 1)];
  (* M7 *) Product [(1, A 0 1); (-1, A 1 1)] [(1, B 1 0); (1, B 1 1)] [(1, C 0 0)]
].
Theorem scheme_multiplies : multiplies 2 2 2 scheme.
Proof. apply check_sound; vm_cast_no_check (eq_refl true). Qed.

(* The schedule msmes; workspaces: none *)
Definition schedule_1 : list (stage coefficients) := [
  [
    Step (A 1 0) Drop (Sum [(1, A 1 0); (1, A 1 1)]);
    Step (A 0 1) Drop (Sum [(1, A 0 0); (1, A 0 1)]);
    Step (B 0 1) Drop (Sum [(1, B 0 1); (-1, B 1 1)]);
    Step (B 1 0) Drop (Sum [(-1, B 0 0); (1, B 1 0)])
  ];
  [
    Step (C 1 0) Beta (Mul (1) (A 1 0) (B 0 0));
    Step (C 1 1) Beta (Mul (-1) (A 1 0) (B 0 0));
    Step (C 0 1) Beta (Mul (1) (A 0 0) (B 0 1));
    Step (C 1 1) Keep (Mul (1) (A 0 0) (B 0 1));
    Step (C 0 0) Beta (Mul (1) (A 1 1) (B 1 0));
    Step (C 1 0) Keep (Mul (1) (A 1 1) (B 1 0));
    Step (C 0 1) Keep (Mul (1) (A 0 1) (B 1 1));
    Step (C 0 0) Keep (Mul (-1) (A 0 1) (B 1 1))
  ];
  [
    Step (A 0 0) Drop (Sum [(1, A 0 0); (1, A 1 1)]);
    Step (B 0 0) Drop (Sum [(1, B 0 0); (1, B 1 1)])
  ];
  [
    Step (A 1 0) Drop (Sum [(-1, A 0 0); (1, A 1 0)]);
    Step (A 0 1) Drop (Sum [(-1, A 0 0); (1, A 0 1)]);
    Step (B 0 1) Drop (Sum [(1, B 0 0); (1, B 0 1)]);
    Step (B 1 0) Drop (Sum [(1, B 0 0); (1, B 1 0)])
  ];
  [
    Step (C 0 0) Keep (Mul (1) (A 0 0) (B 0 0));
    Step (C 1 1) Keep (Mul (1) (A 0 0) (B 0 0));
    Step (C 1 1) Keep (Mul (1) (A 1 0) (B 0 1));
    Step (C 0 0) Keep (Mul (1) (A 0 1) (B 1 0))
  ];
  [
    Step (A 0 0) Drop (Sum [(1, A 0 0); (-1, A 1 1)]);
    Step (B 0 0) Drop (Sum [(1, B 0 0); (-1, B 1 1)])
  ];
  [
    Step (A 0 1) Drop (Sum [(1, A 0 1); (1, A 1 1)]);
    Step (A 1 0) Drop (Sum [(1, A 0 0); (1, A 1 0)]);
    Step (B 0 1) Drop (Sum [(-1, B 0 0); (1, B 0 1)]);
    Step (B 1 0) Drop (Sum [(1, B 1 0); (-1, B 1 1)])
  ]
].
Theorem schedule_1_runs : runs 2 2 2 true (grid A 2 2 ++ grid B 2 2) schedule_1.
Proof. apply check_run_sound; vm_cast_no_check (eq_refl true). Qed.

(* The schedule msmes; workspaces: none *)
Definition schedule_2 : list (stage coefficients) := [
  [
    Step (A 1 0) Drop (Sum [(1, A 1 0); (1, A 1 1)]);
    Step (A 0 1) Drop (Sum [(1, A 0 0); (1, A 0 1)]);
    Step (B 0 1) Drop (Sum [(1, B 0 1); (-1, B 1 1)]);
    Step (B 1 0) Drop (Sum [(-1, B 0 0); (1, B 1 0)])
  ];
  [
    Step (C 1 0) Beta (Mul (1) (A 1 0) (B 0 0));
    Step (C 1 1) Beta (Mul (-1) (A 1 0) (B 0 0));
    Step (C 0 1) Beta (Mul (1) (A 0 1) (B 1 1));
    Step (C 0 0) Beta (Mul (-1) (A 0 1) (B 1 1))
  ];
  [
    Step (C 0 1) Keep (Mul (1) (A 0 0) (B 0 1));
    Step (C 1 1) Keep (Mul (1) (A 0 0) (B 0 1));
    Step (C 0 0) Keep (Mul (1) (A 1 1) (B 1 0));
    Step (C 1 0) Keep (Mul (1) (A 1 1) (B 1 0))
  ];
  [
    Step (A 0 0) Drop (Sum [(1, A 0 0); (1, A 1 1)]);
    Step (A 0 1) Drop (Sum [(-1, A 0 0); (-1, A 1 1); (1, A 0 1)]);
    Step (A 1 0) Drop (Sum [(-1, A 0 0); (-1, A 1 1); (1, A 1 0)]);
    Step (B 0 0) Drop (Sum [(1, B 0 0); (1, B 1 1)]);
    Step (B 0 1) Drop (Sum [(1, B 0 0); (1, B 1 1); (1, B 0 1)]);
    Step (B 1 0) Drop (Sum [(1, B 0 0); (1, B 1 1); (1, B 1 0)])
  ];
  [
    Step (C 0 0) Keep (Mul (1) (A 0 0) (B 0 0));
    Step (C 1 1) Keep (Mul (1) (A 0 0) (B 0 0))
  ];
  [
    Step (C 1 1) Keep (Mul (1) (A 1 0) (B 0 1));
    Step (C 0 0) Keep (Mul (1) (A 0 1) (B 1 0))
  ];
  [
    Step (A 0 0) Drop (Sum [(1, A 0 0); (-1, A 1 1)]);
    Step (A 0 1) Drop (Sum [(1, A 1 1); (1, A 0 1)]);
    Step (A 1 0) Drop (Sum [(1, A 0 0); (-1, A 1 1); (1, A 1 0)]);
    Step (B 0 0) Drop (Sum [(1, B 0 0); (-1, B 1 1)]);
    Step (B 0 1) Drop (Sum [(-1, B 0 0); (1, B 1 1); (1, B 0 1)]);
    Step (B 1 0) Drop (Sum [(-1, B 1 1); (1, B 1 0)])
  ]
].
Theorem schedule_2_runs : runs 2 2 2 true (grid A 2 2 ++ grid B 2 2) schedule_2.
Proof. apply check_run_sound; vm_cast_no_check (eq_refl true). Qed.

Print Assumptions scheme_multiplies.
Print Assumptions schedule_1_runs.
Print Assumptions schedule_2_runs.
