From Coq Require Import List Arith Bool ZArith QArith.
Import ListNotations.
Set Implicit Arguments.
Open Scope nat_scope.

(* ---- What the theorems speak of: this part is to be read and believed. ---- *)

(* The blocks of A, B and C, and of the workspaces, each of which has a number; rows and columns are counted from 0. *)
Inductive block := A (i j : nat) | B (i j : nat) | C (i j : nat) | T (space i j : nat).

Definition block_dec (a b : block) : {a = b} + {a <> b}.
Proof. decide equality; apply Nat.eq_dec. Defined.

(* A ring of coefficients, by its operations; `same` says which coefficients are equal. *)
Record Coefficients := { K :> Type; nought : K; one : K; plus : K -> K -> K; times : K -> K -> K; same : K -> K -> bool }.

Definition integers := Build_Coefficients 0%Z 1%Z Z.add Z.mul Z.eqb.
Definition residues (p : Z) :=
  Build_Coefficients 0%Z 1%Z (fun c d => Z.modulo (c + d) p) (fun c d => Z.modulo (c * d) p) (fun c d => Z.eqb (Z.modulo (c - d) p) 0).
Definition rationals := Build_Coefficients 0%Q 1%Q (fun c d => Qred (c + d)) (fun c d => Qred (c * d)) Qeq_bool.
(* The pair (a, b) is a + b*r, where r*r = d. *)
Definition with_root (d : Q) :=
  Build_Coefficients (0%Q, 0%Q) (1%Q, 0%Q)
    (fun c e => (Qred (fst c + fst e), Qred (snd c + snd e)))
    (fun c e => (Qred (fst c * fst e + d * (snd c * snd e)), Qred (fst c * snd e + snd c * fst e)))
    (fun c e => Qeq_bool (fst c) (fst e) && Qeq_bool (snd c) (snd e)).

(* An algebra over F: a module with a bilinear product, which need be neither commutative nor associative and need have no unit. *)
Record Algebra (F : Coefficients) := {
  R :> Type; zero : R; add : R -> R -> R; opposite : R -> R; act : F -> R -> R; mul : R -> R -> R;
  add_assoc : forall x y z, add x (add y z) = add (add x y) z;
  add_comm : forall x y, add x y = add y x;
  add_zero : forall x, add zero x = x;
  add_opposite : forall x, add (opposite x) x = zero;
  act_zero : forall x, act (nought F) x = zero;
  act_one : forall x, act (one F) x = x;
  act_plus : forall c d x, act (plus F c d) x = add (act c x) (act d x);
  act_times : forall c d x, act (times F c d) x = act c (act d x);
  act_add : forall c x y, act c (add x y) = add (act c x) (act c y);
  act_same : forall c d x, same F c d = true -> act c x = act d x;
  mul_add_left : forall x y z, mul (add x y) z = add (mul x z) (mul y z);
  mul_add_right : forall x y z, mul x (add y z) = add (mul x y) (mul x z);
  mul_act_left : forall c x y, mul (act c x) y = act c (mul x y);
  mul_act_right : forall c x y, mul x (act c y) = act c (mul x y) }.
Arguments zero {F a}. Arguments add {F a}. Arguments act {F a}. Arguments mul {F a}.

(* Multiplication by alpha or beta: a linear map of the algebra. *)
Record Scaling (F : Coefficients) (X : Algebra F) := {
  scale :> X -> X;
  scale_add : forall x y, scale (add x y) = add (scale x) (scale y);
  scale_act : forall c x, scale (act c x) = act c (scale x) }.

Definition form (F : Coefficients) := list (F * block).

(* A product of a scheme: (sum of `left`) * (sum of `right`), added with coefficients to the blocks of `outputs`. *)
Record product (F : Coefficients) := Product { left : form F; right : form F; outputs : form F }.

(* A step of a schedule: target := what is kept of it + a sum of blocks, or + alpha * coefficient * (block * block). *)
Inductive kept := Drop | Keep | Beta.
Inductive source (F : Coefficients) := Sum (f : form F) | Mul (c : F) (l r : block).
Record step (F : Coefficients) := Step { target : block; keeps : kept; value : source F }.
Arguments Product {F}. Arguments Sum {F}. Arguments Mul {F}. Arguments Step {F}.
Definition stage (F : Coefficients) := list (step F).

Section Meaning.
  Variables (F : Coefficients) (X : Algebra F).

  Fixpoint total (x : block -> X) (f : form F) : X :=
    match f with [] => zero | (c, b) :: rest => add (act c (x b)) (total x rest) end.

  (* The block `out` that a scheme computes from blocks x. *)
  Fixpoint to_output (out : block) (m : X) (f : form F) : X :=
    match f with
    | [] => zero
    | (c, b) :: rest => add (if block_dec b out then act c m else zero) (to_output out m rest)
    end.
  Fixpoint computed (s : list (product F)) (x : block -> X) (out : block) : X :=
    match s with
    | [] => zero
    | p :: rest => add (to_output out (mul (total x (left p)) (total x (right p))) (outputs p)) (computed rest x out)
    end.

  (* Entry (i, j) of A*B: the sum of A(i,p)*B(p,j) over the first k values of p. *)
  Definition classical (k : nat) (x : block -> X) (i j : nat) : X :=
    fold_right (fun p rest => add (mul (x (A i p)) (x (B p j))) rest) zero (seq 0 k).

  Variables alpha beta : Scaling X.

  (* All steps of a stage read what was there `before` it; writes to one block add up in their order. *)
  Definition read (before : block -> X) (s : source F) : X :=
    match s with Sum f => total before f | Mul c l r => alpha (act c (mul (before l) (before r))) end.
  Definition write (before now : block -> X) (s : step F) : block -> X :=
    let old := now (target s) in
    let new := read before (value s) in
    let sum := match keeps s with Drop => new | Keep => add old new | Beta => add (beta old) new end in
    fun b => if block_dec (target s) b then sum else now b.
  Definition run_stage (before : block -> X) (s : stage F) : block -> X := fold_left (write before) s before.
  Definition run (stages : list (stage F)) (x : block -> X) : block -> X := fold_left run_stage stages x.
End Meaning.

(* In a stage a block is written again only by products that add to what a product wrote there, and no operand of a product is written. *)
Definition is_product (F : Coefficients) (s : step F) : bool := match value s with Mul _ _ _ => true | Sum _ => false end.
Definition only_adds (F : Coefficients) (s : step F) : bool := match keeps s with Keep => is_product s | _ => false end.
Definition apart (F : Coefficients) (s : stage F) : Prop :=
  ForallOrdPairs (fun t u => target t = target u -> is_product t = true /\ only_adds u = true) s
  /\ Forall (fun t => match value t with
                      | Sum _ => True
                      | Mul _ l r => Forall (fun u => target u <> l /\ target u <> r) s
                      end) s.

(* A scheme multiplies matrices of m x k and k x n blocks, over every algebra. *)
Definition multiplies (F : Coefficients) (m k n : nat) (s : list (product F)) : Prop :=
  forall (X : Algebra F) (x : block -> X) i j, i < m -> j < n -> computed X s x (C i j) = classical X k x i j.

(* C ends as alpha*A*B, or as alpha*A*B + beta*C if the schedule `adds`; the blocks in `restored` end as they began.
   The workspaces, and C where it is not added to, may hold anything at the start. *)
Definition runs (F : Coefficients) (m k n : nat) (adds : bool) (restored : list block) (stages : list (stage F)) : Prop :=
  Forall (@apart F) stages /\
  forall (X : Algebra F) (alpha beta : Scaling X) (x : block -> X),
    let after := run alpha beta stages x in
    (forall i j, i < m -> j < n ->
      after (C i j) = if adds then add (alpha (classical X k x i j)) (beta (x (C i j))) else alpha (classical X k x i j))
    /\ (forall b, In b restored -> after b = x b).

Definition grid (name : nat -> nat -> block) (rows columns : nat) : list block :=
  flat_map (fun i => map (name i) (seq 0 columns)) (seq 0 rows).

(* ---- The checker, and why it is right. What follows need not be believed: Coq checks it. ---- *)

Definition pair_compare (i j i' j' : nat) : comparison :=
  match Nat.compare i i' with Eq => Nat.compare j j' | found => found end.
Definition block_compare (a b : block) : comparison :=
  match a, b with
  | A i j, A i' j' | B i j, B i' j' | C i j, C i' j' => pair_compare i j i' j'
  | T s i j, T s' i' j' => match Nat.compare s s' with Eq => pair_compare i j i' j' | found => found end
  | A _ _, _ => Lt | _, A _ _ => Gt | B _ _, _ => Lt | _, B _ _ => Gt | C _ _, _ => Lt | _, C _ _ => Gt
  end.
Definition block_eqb (a b : block) : bool := match block_compare a b with Eq => true | _ => false end.

(* What a block may hold: a sum of blocks, of blocks times beta, and of products of two blocks times alpha. *)
Inductive monomial := Plain (b : block) | Scaled (b : block) | Times (a b : block).
Definition monomial_compare (x y : monomial) : comparison :=
  match x, y with
  | Plain a, Plain b | Scaled a, Scaled b => block_compare a b
  | Times a b, Times a' b' => match block_compare a a' with Eq => block_compare b b' | found => found end
  | Plain _, _ => Lt | _, Plain _ => Gt | Scaled _, _ => Lt | _, Scaled _ => Gt
  end.

Lemma pair_compare_eq i j i' j' : pair_compare i j i' j' = Eq -> i = i' /\ j = j'.
Proof.
  unfold pair_compare; destruct (Nat.compare i i') eqn:E; try discriminate.
  intro H; split; apply Nat.compare_eq; assumption.
Qed.

Lemma block_compare_eq a b : block_compare a b = Eq -> a = b.
Proof.
  destruct a as [i j|i j|i j|s i j], b as [i' j'|i' j'|i' j'|s' i' j']; simpl; try discriminate; intro H;
    try (apply pair_compare_eq in H; destruct H; subst; reflexivity).
  destruct (Nat.compare s s') eqn:E; try discriminate.
  apply pair_compare_eq in H; apply Nat.compare_eq in E; destruct H; subst; reflexivity.
Qed.

Lemma block_compare_refl a : block_compare a a = Eq.
Proof. destruct a; simpl; unfold pair_compare; repeat rewrite Nat.compare_refl; reflexivity. Qed.

Lemma block_eqb_spec a b : reflect (a = b) (block_eqb a b).
Proof.
  unfold block_eqb; destruct (block_compare a b) eqn:E; constructor;
    [apply block_compare_eq; exact E | |]; intro H; subst; rewrite block_compare_refl in E; discriminate.
Qed.

Lemma monomial_compare_eq x y : monomial_compare x y = Eq -> x = y.
Proof.
  destruct x, y; simpl; try discriminate; intro H; try (apply block_compare_eq in H; subst; reflexivity).
  destruct (block_compare a a0) eqn:E; try discriminate.
  apply block_compare_eq in H; apply block_compare_eq in E; subst; reflexivity.
Qed.

Section Checker.
  Variable F : Coefficients.
  Definition terms := list (monomial * F).

  Definition put (m : monomial) (c : F) (rest : terms) : terms := if same F c (nought F) then rest else (m, c) :: rest.

  (* The sum of two sums whose terms ascend; terms of one monomial become one. *)
  Fixpoint merge (f : terms) : terms -> terms :=
    fix inner (g : terms) : terms :=
      match f, g with
      | [], _ => g
      | _, [] => f
      | (m, c) :: f', (m', d) :: g' =>
        match monomial_compare m m' with
        | Eq => put m (plus F c d) (merge f' g')
        | Lt => (m, c) :: merge f' g
        | Gt => (m', d) :: inner g'
        end
      end.

  Fixpoint in_pairs (l : list terms) : list terms :=
    match l with f :: g :: rest => merge f g :: in_pairs rest | _ => l end.
  Fixpoint merged (fuel : nat) (l : list terms) : terms :=
    match fuel, l with
    | _, [] => []
    | _, [f] => f
    | 0, _ => concat l
    | S fuel, _ => merged fuel (in_pairs l)
    end.
  (* Sums that are each ascending, as one; 64 rounds of merging in pairs are enough for any list. *)
  Definition normal (l : list terms) : terms := merged 64 l.

  Definition scaled (c : F) (f : terms) : terms := map (fun t => (fst t, times F c (snd t))) f.

  Fixpoint equal (f g : terms) : bool :=
    match f, g with
    | [], [] => true
    | (m, c) :: f', (m', d) :: g' =>
      match monomial_compare m m' with Eq => same F c d && equal f' g' | _ => false end
    | _, _ => false
    end.

  (* A sum of blocks, if it is one. *)
  Fixpoint as_form (f : terms) : option (form F) :=
    match f with
    | [] => Some []
    | (Plain b, c) :: rest => match as_form rest with Some g => Some ((c, b) :: g) | None => None end
    | _ => None
    end.

  Definition row (c : F) (a : block) (g : form F) : terms := map (fun t => (Times a (snd t), times F c (fst t))) g.
  Definition bilinear (f g : form F) : list terms := map (fun t => row (fst t) (snd t) g) f.

  Definition singles (f : terms) : list terms := map (fun t => [t]) f.

  (* The terms of a scheme in one block of C, and those of A*B. *)
  Definition contribution (out : block) (p : product F) : list terms :=
    flat_map (fun t => if block_eqb (snd t) out
                       then [scaled (fst t) (normal (singles (concat (bilinear (left p) (right p)))))] else []) (outputs p).
  Definition expected (k i j : nat) : terms := map (fun p => (Times (A i p) (B p j), one F)) (seq 0 k).

  Definition check (m k n : nat) (s : list (product F)) : bool :=
    forallb (fun i => forallb (fun j =>
      equal (normal (flat_map (contribution (C i j)) s)) (normal (singles (expected k i j)))) (seq 0 n)) (seq 0 m).

  (* The blocks as they are now; one that is not listed holds itself. *)
  Definition state := list (block * terms).
  Fixpoint holds (s : state) (b : block) : terms :=
    match s with
    | [] => [(Plain b, one F)]
    | (b', v) :: rest => if block_eqb b' b then v else holds rest b
    end.

  Definition reads (before : state) (s : source F) : option terms :=
    match s with
    | Sum f => Some (normal (map (fun t => scaled (fst t) (holds before (snd t))) f))
    | Mul c l r =>
      match as_form (holds before l), as_form (holds before r) with
      | Some f, Some g => Some (scaled c (normal (singles (concat (bilinear f g)))))
      | _, _ => None
      end
    end.
  Definition writes (before now : state) (s : step F) : option state :=
    match reads before (value s) with
    | None => None
    | Some new =>
      match keeps s with
      | Drop => Some ((target s, new) :: now)
      | Keep => Some ((target s, merge (holds now (target s)) new) :: now)
      | Beta =>
        match as_form (holds now (target s)) with
        | None => None
        | Some f => Some ((target s, merge (map (fun t => (Scaled (snd t), fst t)) f) new) :: now)
        end
      end
    end.
  Fixpoint all_writes (before now : state) (s : stage F) : option state :=
    match s with
    | [] => Some now
    | t :: rest => match writes before now t with Some next => all_writes before next rest | None => None end
    end.
  Fixpoint all_stages (now : state) (stages : list (stage F)) : option state :=
    match stages with
    | [] => Some now
    | s :: rest => match all_writes now now s with Some next => all_stages next rest | None => None end
    end.

  Fixpoint written_apart (s : stage F) : bool :=
    match s with
    | [] => true
    | t :: rest =>
      forallb (fun u => negb (block_eqb (target t) (target u)) || (is_product t && only_adds u)) rest && written_apart rest
    end.
  Definition read_apart (s : stage F) : bool :=
    forallb (fun t => match value t with
                      | Sum _ => true
                      | Mul _ l r => forallb (fun u => negb (block_eqb (target u) l) && negb (block_eqb (target u) r)) s
                      end) s.

  Definition check_run (m k n : nat) (adds : bool) (restored : list block) (stages : list (stage F)) : bool :=
    forallb (fun s => written_apart s && read_apart s) stages &&
    match all_stages [] stages with
    | None => false
    | Some after =>
      forallb (fun i => forallb (fun j =>
        equal (holds after (C i j))
              (normal (singles (expected k i j ++ if adds then [(Scaled (C i j), one F)] else [])))) (seq 0 n)) (seq 0 m)
      && forallb (fun b => equal (holds after b) [(Plain b, one F)]) restored
    end.

  (* What terms mean: alpha and beta are any linear maps; for a scheme, alpha is the identity. *)
  Section Sound.
    Variable X : Algebra F.
    Variables alpha beta : Scaling X.
    Variable x : block -> X.

    Definition means (m : monomial) : X :=
      match m with Plain b => x b | Scaled b => beta (x b) | Times a b => alpha (mul (x a) (x b)) end.
    Fixpoint sum (f : terms) : X :=
      match f with [] => zero | (m, c) :: rest => add (act c (means m)) (sum rest) end.

    Lemma add_zero_right (y : X) : add y zero = y.
    Proof. rewrite add_comm; apply add_zero. Qed.
    Lemma add_swap (a b c : X) : add a (add b c) = add b (add a c).
    Proof. rewrite !add_assoc, (add_comm X a b); reflexivity. Qed.
    Lemma only_zero_doubles (y : X) : add y y = y -> y = zero.
    Proof. intro H; transitivity (add (opposite X y) (add y y)).
    - rewrite add_assoc, add_opposite, add_zero; reflexivity.
    - rewrite H; apply add_opposite.
     Qed.
    Lemma act_on_zero c : act c (zero : X) = zero.
    Proof. apply only_zero_doubles; rewrite <- act_add, add_zero; reflexivity. Qed.
    Lemma mul_zero_left (y : X) : mul zero y = zero.
    Proof. rewrite <- (act_zero X zero) at 1; rewrite mul_act_left; apply act_zero. Qed.
    Lemma mul_zero_right (y : X) : mul y zero = zero.
    Proof. rewrite <- (act_zero X zero) at 1; rewrite mul_act_right; apply act_zero. Qed.
    Lemma scale_zero (s : Scaling X) : s zero = zero.
    Proof. rewrite <- (act_zero X zero) at 1; rewrite scale_act; apply act_zero. Qed.

    Lemma sum_app f g : sum (f ++ g) = add (sum f) (sum g).
    Proof.
      induction f as [|[m c] f IH]; simpl; [rewrite add_zero; reflexivity|].
      rewrite IH, add_assoc; reflexivity.
    Qed.

    Lemma sum_put m c f : sum (put m c f) = add (act c (means m)) (sum f).
    Proof.
      unfold put; destruct (same F c (nought F)) eqn:E; [|reflexivity].
      rewrite (act_same X _ _ _ E), act_zero, add_zero; reflexivity.
    Qed.

    Lemma sum_merge f g : sum (merge f g) = add (sum f) (sum g).
    Proof.
      revert g; induction f as [|[m c] f IH]; intro g.
      - destruct g as [|[m' d] g]; simpl; rewrite add_zero; reflexivity.
      - induction g as [|[m' d] g IHg].
        + simpl; rewrite add_zero_right; reflexivity.
        + simpl merge; destruct (monomial_compare m m') eqn:E.
          * apply monomial_compare_eq in E; subst m'; rewrite sum_put, IH; simpl sum.
            rewrite act_plus, <- !add_assoc; f_equal; apply add_swap.
          * simpl sum; rewrite IH; simpl sum; rewrite add_assoc; reflexivity.
          * change (add (act d (means m')) (sum (merge ((m, c) :: f) g)) = add (sum ((m, c) :: f)) (sum ((m', d) :: g))).
            rewrite IHg; simpl sum; apply add_swap.
    Qed.

    Lemma sum_in_pairs l : sum (concat (in_pairs l)) = sum (concat l).
    Proof.
      enough (H : sum (concat (in_pairs l)) = sum (concat l) /\ forall f, sum (concat (in_pairs (f :: l))) = sum (concat (f :: l)))
        by apply H.
      induction l as [|g l [IH IHc]].
      - split; reflexivity.
      - split; [apply IHc|]; intro f.
        simpl; rewrite !sum_app, sum_merge, IH, add_assoc; reflexivity.
    Qed.

    Lemma sum_merged fuel l : sum (merged fuel l) = sum (concat l).
    Proof.
      revert l; induction fuel as [|fuel IH]; intro l; destruct l as [|f [|g l]]; try reflexivity;
        try (simpl; rewrite app_nil_r; reflexivity).
      change (sum (merged fuel (in_pairs (f :: g :: l))) = sum (concat (f :: g :: l))).
      rewrite IH; apply sum_in_pairs.
    Qed.

    Lemma sum_normal l : sum (normal l) = sum (concat l).
    Proof. apply sum_merged. Qed.
    Lemma concat_singles f : concat (singles f) = f.
    Proof. induction f as [|t f IH]; simpl; [|rewrite IH]; reflexivity. Qed.

    Lemma sum_scaled c f : sum (scaled c f) = act c (sum f).
    Proof.
      induction f as [|[m d] f IH]; simpl; [rewrite act_on_zero; reflexivity|].
      fold (scaled c f); rewrite IH, act_times, act_add; reflexivity.
    Qed.

    Lemma sum_equal f g : equal f g = true -> sum f = sum g.
    Proof.
      revert g; induction f as [|[m c] f IH]; intros [|[m' d] g]; simpl; try discriminate; [reflexivity|].
      destruct (monomial_compare m m') eqn:E; try discriminate.
      intro H; apply andb_true_iff in H; destruct H as [H H'].
      apply monomial_compare_eq in E; subst; rewrite (act_same X _ _ _ H), (IH _ H'); reflexivity.
    Qed.

    Lemma sum_as_form f g : as_form f = Some g -> sum f = total X x g.
    Proof.
      revert g; induction f as [|[m c] f IH]; simpl; intros g H; [injection H as <-; reflexivity|].
      destruct m; try discriminate; destruct (as_form f) as [h|]; try discriminate.
      injection H as <-; simpl; rewrite (IH h eq_refl); reflexivity.
    Qed.

    Lemma sum_row c a g : sum (row c a g) = act c (alpha (mul (x a) (total X x g))).
    Proof.
      induction g as [|[d b] g IH]; simpl; [rewrite mul_zero_right, scale_zero, act_on_zero; reflexivity|].
      fold (row c a g).
      rewrite IH, mul_add_right, mul_act_right, scale_add, scale_act, act_times, act_add; reflexivity.
    Qed.

    Lemma sum_bilinear f g : sum (concat (bilinear f g)) = alpha (mul (total X x f) (total X x g)).
    Proof.
      induction f as [|[c a] f IH]; simpl; [rewrite mul_zero_left, scale_zero; reflexivity|].
      fold (bilinear f g).
      rewrite sum_app, sum_row, IH, mul_add_left, mul_act_left, scale_add, scale_act; reflexivity.
    Qed.

    Lemma sum_expected k i j : sum (expected k i j) = alpha (classical X k x i j).
    Proof.
      unfold expected, classical; induction (seq 0 k) as [|p l IH]; simpl; [rewrite scale_zero; reflexivity|].
      rewrite IH, act_one, scale_add; reflexivity.
    Qed.

    (* Schedules. *)
    Definition describes (s : state) (now : block -> X) : Prop := forall b, sum (holds s b) = now b.

    Lemma sum_reads before then_ s v : describes before then_ -> reads before s = Some v -> sum v = read alpha then_ s.
    Proof.
      intros H; destruct s as [f|c l r]; simpl; intro E.
      - injection E as <-; rewrite sum_normal.
        induction f as [|[c b] f IH]; simpl; [reflexivity|].
        rewrite sum_app, sum_scaled, IH, (H b); reflexivity.
      - destruct (as_form (holds before l)) as [f|] eqn:El; try discriminate.
        destruct (as_form (holds before r)) as [g|] eqn:Er; try discriminate.
        injection E as <-; rewrite sum_scaled, sum_normal, concat_singles, sum_bilinear.
        rewrite <- (sum_as_form _ El), <- (sum_as_form _ Er), (H l), (H r), scale_act; reflexivity.
    Qed.

    Lemma sum_scaled_by_beta f : sum (map (fun t => (Scaled (snd t), fst t)) f) = beta (total X x f).
    Proof.
      induction f as [|[c b] f IH]; simpl; [rewrite scale_zero; reflexivity|].
      rewrite IH, scale_add, scale_act; reflexivity.
    Qed.

    Lemma describes_update now n t v w : describes now n -> sum v = w ->
      describes ((t, v) :: now) (fun b => if block_dec t b then w else n b).
    Proof.
      intros H E b; simpl; destruct (block_eqb_spec t b), (block_dec t b); try contradiction; [exact E | apply H].
    Qed.

    Lemma describes_writes before b4 now n s next : describes before b4 -> describes now n ->
      writes before now s = Some next -> describes next (write alpha beta b4 n s).
    Proof.
      intros Hb Hn; unfold writes, write; destruct (reads before (value s)) as [v|] eqn:E; try discriminate.
      apply (sum_reads _ Hb) in E; destruct (keeps s).
      - intro H; injection H as <-; apply describes_update; assumption.
      - intro H; injection H as <-; apply describes_update; [assumption|]; rewrite sum_merge, (Hn (target s)), E; reflexivity.
      - destruct (as_form (holds now (target s))) as [f|] eqn:Ef; try discriminate.
        intro H; injection H as <-; apply describes_update; [assumption|].
        rewrite sum_merge, sum_scaled_by_beta, <- (sum_as_form _ Ef), (Hn (target s)), E; reflexivity.
    Qed.

    Lemma describes_all_writes before b4 s : describes before b4 -> forall now n next, describes now n ->
      all_writes before now s = Some next -> describes next (fold_left (write alpha beta b4) s n).
    Proof.
      intro Hb; induction s as [|t s IH]; simpl; intros now n next Hn H; [injection H as <-; exact Hn|].
      destruct (writes before now t) as [mid|] eqn:E; try discriminate.
      apply (IH _ _ _ (describes_writes _ Hb Hn E) H).
    Qed.

    Lemma describes_all_stages stages : forall now n next, describes now n ->
      all_stages now stages = Some next -> describes next (run alpha beta stages n).
    Proof.
      induction stages as [|s stages IH]; simpl; intros now n next Hn H; [injection H as <-; exact Hn|].
      destruct (all_writes now now s) as [mid|] eqn:E; try discriminate.
      apply (IH _ _ _ (describes_all_writes _ Hn Hn E) H).
    Qed.

    Lemma describes_start : describes [] x.
    Proof. intro b; simpl; rewrite act_one, add_zero_right; reflexivity. Qed.
  End Sound.

  Lemma in_seq_check n (f : nat -> bool) i : forallb f (seq 0 n) = true -> i < n -> f i = true.
  Proof. intros H Hi; rewrite forallb_forall in H; apply H, in_seq; auto with arith. Qed.

  Definition unchanged (X : Algebra F) : Scaling X := Build_Scaling X (fun y => y) (fun _ _ => eq_refl) (fun _ _ => eq_refl).

  Lemma sum_contribution (X : Algebra F) beta (x : block -> X) out p :
    sum (unchanged X) beta x (concat (contribution out p)) =
    to_output X out (mul (total X x (left p)) (total X x (right p))) (outputs p).
  Proof.
    unfold contribution; induction (outputs p) as [|[c b] f IH]; simpl; [reflexivity|].
    rewrite concat_app, sum_app, IH; f_equal.
    destruct (block_eqb_spec b out), (block_dec b out); try contradiction; [|reflexivity].
    simpl; rewrite app_nil_r, sum_scaled, sum_normal, concat_singles, sum_bilinear; reflexivity.
  Qed.

  Lemma sum_computed (X : Algebra F) beta (x : block -> X) out s :
    sum (unchanged X) beta x (concat (flat_map (contribution out) s)) = computed X s x out.
  Proof.
    induction s as [|p s IH]; simpl; [reflexivity|].
    rewrite concat_app, sum_app, sum_contribution, IH; reflexivity.
  Qed.

  Theorem check_sound m k n s : check m k n s = true -> multiplies m k n s.
  Proof.
    intros H X x i j Hi Hj.
    assert (E := in_seq_check _ (in_seq_check _ H Hi) Hj).
    apply (sum_equal (unchanged X) (unchanged X) x) in E.
    rewrite !sum_normal, sum_computed, concat_singles, sum_expected in E; exact E.
  Qed.

  Lemma written_apart_sound s : written_apart s = true ->
    ForallOrdPairs (fun t u => target t = target u -> is_product t = true /\ only_adds u = true) s.
  Proof.
    induction s as [|t s IH]; simpl; intro H; constructor; apply andb_true_iff in H; destruct H as [H H']; [|exact (IH H')].
    rewrite Forall_forall; rewrite forallb_forall in H; intros u Hu E; specialize (H u Hu).
    destruct (block_eqb_spec (target t) (target u)); [|contradiction].
    apply andb_true_iff; exact H.
  Qed.

  Lemma read_apart_sound s : read_apart s = true ->
    Forall (fun t => match value t with
                     | Sum _ => True
                     | Mul _ l r => Forall (fun u => target u <> l /\ target u <> r) s
                     end) s.
  Proof.
    unfold read_apart; rewrite forallb_forall, Forall_forall; intros H t Ht; specialize (H t Ht).
    destruct (value t) as [|c l r]; [exact I|].
    rewrite forallb_forall in H; rewrite Forall_forall; intros u Hu; specialize (H u Hu).
    destruct (block_eqb_spec (target u) l), (block_eqb_spec (target u) r); try discriminate; split; assumption.
  Qed.

  Theorem check_run_sound m k n adds restored stages :
    check_run m k n adds restored stages = true -> runs m k n adds restored stages.
  Proof.
    unfold check_run; intro H; apply andb_true_iff in H; destruct H as [Ha H]; split.
    - rewrite Forall_forall; rewrite forallb_forall in Ha; intros s Hs; specialize (Ha s Hs).
      apply andb_true_iff in Ha; destruct Ha; split; [apply written_apart_sound | apply read_apart_sound]; assumption.
    - intros X alpha beta x after; destruct (all_stages [] stages) as [found|] eqn:E; try discriminate.
      assert (D := describes_all_stages stages (describes_start alpha beta x) E).
      apply andb_true_iff in H; destruct H as [Hc Hr]; split.
      + intros i j Hi Hj; assert (Q := in_seq_check _ (in_seq_check _ Hc Hi) Hj).
        apply (sum_equal alpha beta x) in Q; rewrite (D (C i j)), sum_normal, concat_singles, sum_app, sum_expected in Q.
        unfold after; rewrite Q; destruct adds; simpl; [rewrite act_one|]; rewrite add_zero_right; reflexivity.
      + intros b Hb; rewrite forallb_forall in Hr; assert (Q := Hr b Hb).
        apply (sum_equal alpha beta x) in Q; rewrite (D b) in Q.
        unfold after; rewrite Q; simpl; rewrite act_one; apply add_zero_right.
  Qed.
End Checker.
